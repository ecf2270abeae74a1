// SPDX-License-Identifier: MIT
// The rules of the house, as far as a program can see them, on a tree of files. house.cpp runs them
// on ours, house_catches.cpp on small trees that break one rule each.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "source.hpp"

namespace contract {

namespace fs = std::filesystem;

/// Folder -> the folders it may include besides itself. A folder that is not here may not exist.
inline const std::map<std::string, std::set<std::string>>& layers() {
  static const std::map<std::string, std::set<std::string>> table = {
      {"core", {}},
      {"numeric", {"core"}},
      {"data", {"core"}},
      {"kernels", {"core", "numeric"}},
      {"tensor", {"core", "numeric"}},
      {"plan", {"core", "numeric"}},
      {"io", {"core", "numeric", "tensor"}},
      {"autograd", {"core", "numeric", "kernels", "tensor"}},
      {"optim", {"core", "numeric", "kernels", "tensor"}},
      {"mixed", {"core", "numeric", "kernels", "tensor", "optim"}},
      {"nn", {"core", "numeric", "kernels", "tensor", "autograd"}},
      {"train",
       {"core", "numeric", "data", "kernels", "tensor", "plan", "autograd", "optim", "mixed",
        "nn"}},
      {"dist/transport", {"core"}},
      {"dist/collective", {"core", "numeric", "kernels", "dist/transport"}},
      {"dist/parallel",
       {"core", "numeric", "kernels", "tensor", "plan", "autograd", "optim", "mixed", "nn",
        "dist/transport", "dist/collective"}}};
  return table;
}

class House {
 public:
  explicit House(const fs::path& root) : root_(root) {}

  /// Every broken rule as "file:line: what, and what to do".
  [[nodiscard]] std::vector<std::string> check() {
    top_level();
    int headers = 0;
    const fs::path include = root_ / "include" / "halfstep";
    if (fs::exists(include)) {
      for (const fs::path& path : files(include)) {
        const std::string name = fs::relative(path, include).generic_string();
        const std::string extension = path.extension().string();
        if (extension == ".hpp" || extension == ".inc") {
          header(name, read(path));
          ++headers;
        } else if (name != "README.md") {
          say(name, 0, "is neither .hpp nor .inc");
        }
      }
    }
    if (headers == 0) say("include/halfstep", 0, "holds no headers: this check looked at nothing");
    for (const char* folder : {"tests", "bench", "examples"}) {
      if (!fs::exists(root_ / folder)) continue;
      for (const fs::path& path : files(root_ / folder))
        program(path);
    }
    return problems_;
  }

 private:
  static std::vector<fs::path> files(const fs::path& under) {
    std::vector<fs::path> out;
    for (const auto& entry : fs::recursive_directory_iterator(under)) {
      if (entry.is_regular_file()) out.push_back(entry.path());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  void say(const std::string& file, int line, const std::string& what) {
    problems_.push_back(file + (line > 0 ? ":" + std::to_string(line) : "") + ": " + what);
  }

  static std::string folder_of(const std::string& name) {
    const std::size_t slash = name.find('/');
    if (slash == std::string::npos) return "";
    std::string folder = name.substr(0, slash);
    if (folder != "dist") return folder;
    const std::size_t next = name.find('/', slash + 1);
    return next == std::string::npos ? folder : name.substr(0, next);
  }

  void top_level() {
    static const std::set<std::string> allowed = {
        "include",        "tests",     "bench",   "examples", "cmake",
        "CMakeLists.txt", "README.md", "LICENSE", "build",    "out"};
    for (const auto& entry : fs::directory_iterator(root_)) {
      const std::string name = entry.path().filename().string();
      if (name.front() == '.' || allowed.count(name) > 0) continue;
      say(name, 0, "does not belong at the top level");
    }
  }

  void header(const std::string& name, const std::string& text) {
    const std::string folder = folder_of(name);
    if (text.rfind("// SPDX-License-Identifier: MIT\n", 0) != 0) {
      say(name, 1, "does not start with the SPDX line");
    }
    const auto lines = std::count(text.begin(), text.end(), '\n');
    if (lines > 500) say(name, 0, "has " + std::to_string(lines) + " lines; split it (limit 500)");
    const std::string file = name.substr(name.rfind('/') + 1);
    for (const char* word : {"util", "helper", "common", "misc"}) {
      if (file.rfind(word, 0) == 0) say(name, 0, "is called after nothing: name what it holds");
    }
    if (folder.empty()) {
      umbrella(name);
    } else if (layers().count(folder) == 0) {
      say(name, 0, "folder '" + folder + "' is not in the layer table");
    } else {
      includes(name, folder, text);
    }
    state(name, text);
    words(name, folder, text);
  }

  void umbrella(const std::string& name) {
    const std::string stem = name.substr(0, name.rfind('.'));
    if (stem == "halfstep" || stem == "dist" || layers().count(stem) > 0) return;
    say(name, 0, "is no folder's umbrella");
  }

  void includes(const std::string& name, const std::string& folder, const std::string& text) {
    const bool is_inc = name.ends_with(".inc");
    const bool in_detail = name.find("/detail/") != std::string::npos;
    if (is_inc && !in_detail) say(name, 0, "is a .inc file outside detail/");
    bool strict = false;
    for (const Directive& d : directives(text)) {
      if (d.name.rfind("if", 0) == 0 || d.name.rfind("elif", 0) == 0) {
        if (name != "core/config.hpp" && name != "core/target.hpp") {
          say(name, d.line, "#" + d.name + " belongs in core/config.hpp or core/target.hpp alone");
        }
        continue;
      }
      if (d.name != "include" && d.name != "include_next" && d.name != "import") continue;
      if (d.indented) say(name, d.line, "indented #include");
      if (d.name != "include") say(name, d.line, "#" + d.name);
      if (d.rest.size() < 2 || d.rest.front() != '<') {
        say(name, d.line,
            d.rest.rfind('"', 0) == 0 ? "quoted include " + d.rest + "; write <halfstep/…>"
                                      : "computed include " + d.rest);
        if (d.rest.rfind('"', 0) != 0) continue;
      }
      const char close = d.rest.front() == '<' ? '>' : '"';
      const std::string target = d.rest.substr(1, d.rest.find(close, 1) - 1);
      if (target == "halfstep/core/strict_math.hpp") strict = true;
      if (target.find("./") != std::string::npos) {
        say(name, d.line, "relative include <" + target + ">");
      } else {
        include(name, folder, d.line, target);
      }
      if (is_inc && !target.ends_with(".inc")) {
        say(name, d.line, "<" + target + "> in a .inc file, which stands inside a target region");
      }
    }
    if (!is_inc) region_includes(name, text);
    static const std::set<std::string> trains = {"kernels", "tensor", "autograd", "optim",
                                                 "mixed",   "nn",     "train"};
    if (trains.count(folder) > 0 && !in_detail && !strict) {
      say(name, 0, "trains, but does not include <halfstep/core/strict_math.hpp>");
    }
    if ((folder == "core" || folder == "numeric") && strict) {
      say(name, 0, "includes core/strict_math.hpp, but has to work under -ffast-math");
    }
  }

  void include(const std::string& name, const std::string& folder, int line,
               const std::string& target) {
    static const std::regex intrinsics("(.*/)?([a-z0-9]*intrin|avx[a-z0-9]*)\\.h");
    static const std::set<std::string> reports = {"iostream", "regex", "filesystem"};
    static const std::set<std::string> never = {"format", "stdfloat", "omp.h", "bits/stdc++.h"};
    if (std::regex_match(target, intrinsics)) {
      static const std::regex per_isa(".*/detail/[a-z0-9_]*(sse|avx|f16c)[a-z0-9_]*\\.hpp");
      if (!std::regex_match(name, per_isa)) {
        say(name, line, "<" + target + "> belongs in a detail/ file of one instruction set");
      }
    } else if (target.rfind("Eigen/", 0) == 0 || target.rfind("unsupported/Eigen", 0) == 0 ||
               target.rfind("eigen3/", 0) == 0) {
      if (name != "numeric/eigen.hpp") say(name, line, "Eigen belongs in numeric/eigen.hpp alone");
    } else if (target.rfind("nlohmann/", 0) == 0) {
      if (folder != "io") say(name, line, "nlohmann_json belongs in io/ alone");
    } else if (target.rfind("CLI/", 0) == 0 || target.rfind("gtest/", 0) == 0 ||
               never.count(target) > 0) {
      say(name, line, "<" + target + "> has no place in a header");
    } else if (reports.count(target) > 0) {
      if (folder != "data" && folder != "io" && folder != "train") {
        say(name, line, "<" + target + "> belongs in data/, io/ and train/ alone");
      }
    }
    if (target.rfind("halfstep/", 0) != 0) return;
    const std::string ours = target.substr(9);
    const std::string to = folder_of(ours);
    if (to.empty()) {
      say(name, line, "includes the umbrella <" + target + ">");
    } else if (to != folder) {
      if (layers().at(folder).count(to) == 0) {
        say(name, line, "'" + folder + "' may not include '" + to + "' (<" + target + ">)");
      } else if (ours.find("/detail/") != std::string::npos) {
        say(name, line, "<" + target + "> belongs to '" + to + "' alone");
      }
    }
    if (!fs::exists(root_ / "include" / target)) {
      say(name, line, "<" + target + "> does not exist");
    }
  }

  /// Between HALFSTEP_BEGIN_TARGET and END an included inline function would be compiled for that
  /// instruction set under a name that the whole program shares.
  void region_includes(const std::string& name, const std::string& text) {
    if (name == "core/target.hpp") return;
    const std::string code = blanked(text, false);
    bool inside = false;
    int line = 0;
    std::size_t at = 0;
    while (at < code.size()) {
      const std::size_t end = std::min(code.find('\n', at), code.size());
      const std::string row = code.substr(at, end - at);
      ++line;
      at = end + 1;
      if (row.find("HALFSTEP_BEGIN_TARGET") != std::string::npos) inside = true;
      if (row.find("HALFSTEP_END_TARGET") != std::string::npos) inside = false;
      if (inside && row.find('#') != std::string::npos &&
          row.find("include") != std::string::npos && row.find(".inc>") == std::string::npos) {
        say(name, line, "include inside a target region: " + row);
      }
    }
    if (inside) say(name, line, "HALFSTEP_BEGIN_TARGET without HALFSTEP_END_TARGET");
  }

  void state(const std::string& name, const std::string& text) {
    const MutableState scan(text);
    for (const Found& found : scan.found()) {
      say(name, found.line, "a variable that can change and that nobody owns: " + found.text);
    }
  }

  void words(const std::string& name, const std::string& folder, const std::string& text) {
    static const std::regex todo("\\b(TODO|FIXME|XXX)\\b");
    if (std::regex_search(text, todo)) say(name, 0, "holds a TODO");
    // glibc's versions differ between CPUs with and without FMA; ours are in numeric/elementary.
    static const std::regex libm(
        "std::(exp|exp2|expm1|log|log2|log10|log1p|sin|cos|tan|asin|acos|atan|atan2|sinh|cosh|tanh|"
        "pow|cbrt|erf|erfc|tgamma|lgamma|hypot)[fl]?\\s*\\(");
    static const std::regex approximate("_mm(256|512)?_[a-z0-9_]*(rcp|rsqrt)[0-9]*_");
    static const std::set<std::string> reports_only = {"data", "io", "plan", "train"};
    const std::string code = blanked(text, true);
    std::smatch match;
    if (reports_only.count(folder) == 0 && std::regex_search(code, match, libm)) {
      say(name, 0, match.str() + ": use numeric/elementary.hpp");
    }
    if (std::regex_search(code, match, approximate)) {
      say(name, 0, match.str() + ": an approximation that differs between CPUs");
    }
  }

  void program(const fs::path& path) {
    const std::string extension = path.extension().string();
    if (extension != ".cpp" && extension != ".hpp") return;
    const std::string name = fs::relative(path, root_).generic_string();
    if (name.rfind("tests/contract/", 0) == 0) return;  // they hold broken code as text
    const std::string text = read(path);
    if (text.rfind("// SPDX-License-Identifier: MIT\n", 0) != 0) {
      say(name, 1, "does not start with the SPDX line");
    }
    const std::string code = blanked(text, true);
    if (name != "tests/require.hpp" && code.find("GTEST_SKIP") != std::string::npos) {
      say(name, 0, "GTEST_SKIP; use HALFSTEP_SKIP_OR_FAIL of tests/require.hpp");
    }
    if (name.ends_with("_oracle.cpp")) {
      for (const Directive& d : directives(text)) {
        if (d.name == "include" && d.rest.find("halfstep/") != std::string::npos) {
          say(name, d.line, "an oracle shares no code with what it judges");
        }
      }
    }
  }

  fs::path root_;
  std::vector<std::string> problems_;
};

}  // namespace contract
