// SPDX-License-Identifier: MIT
// house_catches DIR: shows that the house's check sees what it is for. A clean tree, with
// everything that looks like a broken rule and is none, must pass; then one file at a time breaks
// one rule, and exactly that must be reported.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "house.hpp"

namespace {

namespace fs = std::filesystem;

struct File {
  std::string path;
  std::string text;
};

const std::string spdx = "// SPDX-License-Identifier: MIT\n";
const std::string strict = "#include <halfstep/core/strict_math.hpp>\n";
const std::string header = "include/halfstep/";

std::string in_namespace(const std::string& code) {
  return spdx + "#pragma once\nnamespace halfstep::inline HALFSTEP_CONFIG::core {\n" + code +
         "\n}  // namespace\n";
}

const std::string innocent = R"code(
// int in_a_comment = 1;
/* #include "quoted.hpp" */
inline constexpr int digits = 0x3F80'8000;
inline constexpr float table[] = {1.0F, 2.0F};
inline constexpr const char* name = "int x = 1; #include \"y\"";
const char* const fixed = R"(static int y;)";
template <class T> inline constexpr bool is = false;
template <> inline constexpr bool is<int> = true;
template <class T> concept thing = requires(T t) { t.x(); };
template <class T> requires(sizeof(T) > 2) struct Wide { T value{}; int other = 3; };
template <class T> requires requires(T t) { t.x(); } void f(T t) { int local = 2; t.x(local); }
enum class Isa { portable, avx2 };
enum class Later : int;
struct Forward;
template <class T = int> struct Other;
using Function = void (*)(int);
struct A {
  A() : a_{1}, b_(2) {}
  explicit A(int a) : a_{a} {}
  static int count() { return 1; }
  static constexpr int limit = 3;
  static A zero();
  A& operator=(const A&) = default;
  bool operator==(const A&) const = default;
  [[nodiscard]] int a() const { return a_; }
 private:
  int a_ = 0;
  int b_{};
};
template <class T> A(T) -> A;
inline A A::zero() { static const int made = 7; return A{made}; }
inline int defaulted(int x = 3, char c = '\'') { for (int i = 0; i < x; ++i) { x += c; } return x; }
[[nodiscard]] inline auto lambda() { return [](int v) { int w = v; return w; }; }
inline constexpr auto twice = [](int v) { const int w = 2 * v; return w; };
__attribute__((noinline)) inline int g(int) noexcept(true);
static_assert(sizeof(int) == 4);
extern template struct Wide<long>;
namespace detail { inline int h() { return 0; } }
)code";

std::vector<File> clean() {
  std::vector<File> files = {
      {"CMakeLists.txt", ""},
      {".clang-format", ""},
      {header + "core/config.hpp", spdx + "#ifdef X\n#endif\n"},
      {header + "core/strict_math.hpp", spdx},
      {header + "core/innocent.hpp", in_namespace(innocent)},
      {header + "core/detail/word.hpp", spdx + "#include <halfstep/core/config.hpp>\n"},
      {header + "numeric/eigen.hpp", spdx + "#include <Eigen/Core>\n"},
      {header + "numeric/bf16.hpp", spdx + "#include <halfstep/core/config.hpp>\n"},
      {header + "kernels/gemm.hpp",
       spdx + strict + "#include <halfstep/kernels/detail/avx2.hpp>\n"},
      {header + "kernels/detail/avx2.hpp",
       spdx + "#include <immintrin.h>\n#include <halfstep/numeric/bf16.hpp>\n"
              "HALFSTEP_BEGIN_TARGET(AVX2)\n#include <halfstep/kernels/detail/gemm.inc>\n"
              "HALFSTEP_END_TARGET\n"},
      {header + "kernels/detail/gemm.inc", spdx + "inline void gemm(int n) { int i = n; }\n"},
      {header + "autograd/tape.hpp", spdx + strict + "#include <halfstep/kernels/gemm.hpp>\n"},
      {header + "optim/adamw.hpp", spdx + strict},
      {header + "data/text.hpp",
       spdx + "#include <filesystem>\ninline double f() { return std::log(2.0); }\n"},
      {header + "io/file.hpp", spdx + "#include <nlohmann/json.hpp>\n"},
      {header + "dist/transport/thread.hpp", spdx},
      {header + "core.hpp", spdx + "#include <halfstep/core/config.hpp>\n"},
      {header + "README.md", "# map\n"},
      {"tests/require.hpp", spdx + "#define X GTEST_SKIP()\n"},
      {"tests/core/word_test.cpp", spdx + "// GTEST_SKIP is not for here\n"},
      {"tests/core/word_oracle.cpp", spdx + "#include <cstdint>\n"}};
  return files;
}

void write(const fs::path& root, const std::vector<File>& files) {
  for (const File& file : files) {
    fs::create_directories((root / file.path).parent_path());
    std::ofstream(root / file.path, std::ios::binary) << file.text;
  }
}

struct Case {
  std::string name;
  File file;
  std::string expected;  ///< part of the one line that must be reported
};

std::vector<Case> cases() {
  std::string long_file = spdx;
  for (int i = 0; i < 500; ++i)
    long_file += "//\n";
  std::vector<Case> out = {
      {"upward include",
       {header + "core/a.hpp", spdx + "#include <halfstep/numeric/bf16.hpp>\n"},
       "'core' may not include 'numeric'"},
      {"sideways include",
       {header + "tensor/a.hpp", spdx + strict + "#include <halfstep/kernels/gemm.hpp>\n"},
       "'tensor' may not include 'kernels'"},
      {"the optimizer knows the tape",
       {header + "optim/a.hpp", spdx + strict + "#include <halfstep/autograd/tape.hpp>\n"},
       "'optim' may not include 'autograd'"},
      {"upward include, spaced",
       {header + "core/a.hpp", spdx + "#include  <halfstep/numeric/bf16.hpp> // why\n"},
       "'core' may not include 'numeric'"},
      {"upward include, continued",
       {header + "core/a.hpp", spdx + "#include \\\n<halfstep/numeric/bf16.hpp>\n"},
       "a.hpp:2: 'core' may not include 'numeric'"},
      {"upward include in a .inc",
       {header + "core/detail/a.inc", spdx + "#include <halfstep/kernels/detail/gemm.inc>\n"},
       "'core' may not include 'kernels'"},
      {"another folder's detail",
       {header + "numeric/a.hpp", spdx + "#include <halfstep/core/detail/word.hpp>\n"},
       "belongs to 'core' alone"},
      {"umbrella",
       {header + "numeric/a.hpp", spdx + "#include <halfstep/core.hpp>\n"},
       "includes the umbrella"},
      {"quoted include",
       {header + "core/a.hpp", spdx + "#include \"config.hpp\"\n"},
       "quoted include \"config.hpp\""},
      {"indented include",
       {header + "core/a.hpp", spdx + "  #include <vector>\n"},
       "indented #include"},
      {"include with a space after #",
       {header + "core/a.hpp", spdx + "# include <vector>\n"},
       "indented #include"},
      {"relative include",
       {header + "core/a.hpp", spdx + "#include <halfstep/core/../numeric/bf16.hpp>\n"},
       "relative include"},
      {"computed include",
       {header + "core/a.hpp", spdx + "#include WHAT\n"},
       "computed include WHAT"},
      {"missing header",
       {header + "core/a.hpp", spdx + "#include <halfstep/core/nothing.hpp>\n"},
       "does not exist"},
      {"include_next", {header + "core/a.hpp", spdx + "#include_next <vector>\n"}, "#include_next"},
      {"intrinsics in a public header",
       {header + "core/a.hpp", spdx + "#include <immintrin.h>\n"},
       "one instruction set"},
      {"intrinsics by another name",
       {header + "core/a.hpp", spdx + "#include <x86intrin.h>\n"},
       "one instruction set"},
      {"intrinsics in a portable detail",
       {header + "core/detail/portable.hpp", spdx + "#include <xmmintrin.h>\n"},
       "one instruction set"},
      {"Eigen elsewhere",
       {header + "numeric/a.hpp", spdx + "#include <Eigen/Core>\n"},
       "numeric/eigen.hpp alone"},
      {"JSON elsewhere",
       {header + "core/a.hpp", spdx + "#include <nlohmann/json.hpp>\n"},
       "io/ alone"},
      {"iostream",
       {header + "core/a.hpp", spdx + "#include <iostream>\n"},
       "<iostream> belongs in"},
      {"regex", {header + "numeric/a.hpp", spdx + "#include <regex>\n"}, "<regex> belongs in"},
      {"filesystem",
       {header + "core/a.hpp", spdx + "#include <filesystem>\n"},
       "<filesystem> belongs in"},
      {"format", {header + "core/a.hpp", spdx + "#include <format>\n"}, "has no place"},
      {"command line in a header",
       {header + "train/a.hpp", spdx + strict + "#include <CLI/CLI.hpp>\n"},
       "has no place"},
      {"501 lines", {header + "core/a.hpp", long_file}, "501 lines"},
      {"unknown folder", {header + "extras/a.hpp", spdx}, "'extras' is not in the layer table"},
      {"unknown umbrella", {header + "extras.hpp", spdx}, "no folder's umbrella"},
      {"a name that says nothing", {header + "core/utils.hpp", spdx}, "called after nothing"},
      {"stray file", {header + "core/a.cpp", spdx}, "neither .hpp nor .inc"},
      {".inc in the open", {header + "core/a.inc", spdx}, ".inc file outside detail/"},
      {"std in a .inc",
       {header + "kernels/detail/a.inc", spdx + "#include <vector>\n"},
       "inside a target region"},
      {"std in a region",
       {header + "kernels/detail/avx512.hpp",
        spdx + "HALFSTEP_BEGIN_TARGET(AVX512)\n#include <vector>\nHALFSTEP_END_TARGET\n"},
       "include inside a target region"},
      {"region left open",
       {header + "kernels/detail/avx512.hpp", spdx + "HALFSTEP_BEGIN_TARGET(AVX512)\n"},
       "without HALFSTEP_END_TARGET"},
      {"conditional",
       {header + "core/a.hpp", spdx + "#ifdef __AVX2__\n#endif\n"},
       "#ifdef belongs in"},
      {"no SPDX", {header + "core/a.hpp", "#pragma once\n"}, "SPDX"},
      {"TODO", {header + "core/a.hpp", spdx + "// TODO later\n"}, "TODO"},
      {"fast-math guard missing", {header + "kernels/a.hpp", spdx}, "strict_math"},
      {"fast-math guard where it may not be",
       {header + "numeric/a.hpp", spdx + strict},
       "-ffast-math"},
      {"libm",
       {header + "numeric/a.hpp", spdx + "inline double f(double x) { return std::exp(x); }\n"},
       "std::exp("},
      {"approximate reciprocal",
       {header + "kernels/detail/avx2_a.hpp",
        spdx + "inline int f() { return _mm256_rsqrt_ps(1); }\n"},
       "approximation"},
      {"top level", {"scripts/a.sh", ""}, "scripts: does not belong"},
      {"raw skip", {"tests/core/a_test.cpp", spdx + "void f() { GTEST_SKIP(); }\n"}, "GTEST_SKIP"},
      {"oracle with our header",
       {"tests/core/a_oracle.cpp", spdx + "#include <halfstep/core/config.hpp>\n"},
       "shares no code"}};
  const std::vector<std::pair<std::string, std::string>> variables = {
      {"variable", "int counter;"},
      {"initialised variable", "inline int counter = 0;"},
      {"braced variable", "inline int counter{3};"},
      {"static variable", "static double total = 0.0;"},
      {"array", "float table[4] = {1, 2, 3, 4};"},
      {"extern variable", "extern int shared;"},
      {"pointer that can move", "inline const char* name = \"x\";"},
      {"constinit", "constinit int seed = 1;"},
      {"class type", "inline std::vector<int> cache;"},
      {"function type in angles", "inline std::function<void(int)> hook;"},
      {"function pointer", "inline void (*hook)(int) = nullptr;"},
      {"variable template", "template <class T> inline T zero = T(0);"},
      {"thread_local", "inline thread_local int depth = 0;"},
      {"object of a new type", "struct State { int n; } state;"},
      {"after a function with a constructor list",
       "struct B { int x; B(); };\ninline B::B() : x{1} {}\nint counter = 2;"},
      {"in an unnamed namespace", "namespace { int counter = 0; }"},
      {"with an attribute", "[[maybe_unused]] inline int counter = 0;"},
      {"aligned", "alignas(64) inline float buffer[16];"},
      {"static member", "struct S { static inline int count = 0; };"},
      {"static member after a function",
       "struct S { int f() { return 1; }\n public:\n  static inline int count = 0; };"},
      {"static local", "inline int next() { static int n = 0; return ++n; }"},
      {"static local in a block",
       "inline int next(bool b) { if (b) { static int n = 0; return ++n; } return 0; }"},
      {"static local of a member", "struct S { int next() { static int n{}; return ++n; } };"},
      {"thread_local local", "inline int next() { thread_local int n = 0; return ++n; }"}};
  for (const auto& [name, code] : variables) {
    out.push_back({name, {header + "core/a.hpp", in_namespace(code)}, "nobody owns"});
  }
  out.push_back({"variable in a .inc",
                 {header + "kernels/detail/a.inc", spdx + "int counter = 0;\n"},
                 "nobody owns"});
  return out;
}

int failures = 0;

void expect(bool ok, const std::string& name, const std::vector<std::string>& problems) {
  if (ok) return;
  ++failures;
  std::printf("FAILED: %s; reported:\n", name.c_str());
  for (const std::string& problem : problems)
    std::printf("    %s\n", problem.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const fs::path root = fs::path(argv[1]);
  const auto fresh = [&](const std::vector<File>& files) {
    fs::remove_all(root);
    fs::create_directories(root);
    write(root, files);
    return contract::House(root).check();
  };
  const std::vector<std::string> none = fresh(clean());
  expect(none.empty(), "the clean tree", none);
  if (failures > 0) return 1;  // every other case would report the same
  const std::vector<std::string> empty = fresh({{"CMakeLists.txt", ""}});
  expect(empty.size() == 1 && empty[0].find("looked at nothing") != std::string::npos,
         "a tree without headers", empty);
  const std::vector<Case> all = cases();
  for (const Case& c : all) {
    std::vector<File> files = clean();
    files.push_back(c.file);
    const std::vector<std::string> problems = fresh(files);
    expect(problems.size() == 1 && problems[0].find(c.expected) != std::string::npos, c.name,
           problems);
  }
  fs::remove_all(root);
  std::printf("%zu ways to break the house, %d not seen as they should be\n", all.size(), failures);
  return failures == 0 ? 0 : 1;
}
