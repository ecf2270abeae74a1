// SPDX-License-Identifier: MIT
// capstone: trains a small GPT on a text, evaluates it, writes text with it. Each file beside this
// one does one part; model_of.hpp is the one that uses the library most.
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>

#include "commands.hpp"
#include "options.hpp"

namespace {

using capstone::Given;
namespace core = halfstep::core;

constexpr std::array<std::string_view, 3> commands{"train", "eval", "sample"};

/// A subcommand whose options are those of a table, taken as text and in the order of the table.
class Command {
 public:
  template <class Fields>
  Command(CLI::App& app, const std::string& name, const std::string& what, const Fields& fields) {
    app_ = app.add_subcommand(name, what);
    app_->allow_extras();
    for (const auto& field : fields)
      add(std::string(field.name), std::string(field.help));
  }
  void add(const std::string& name, const std::string& help) {
    names_.push_back(name);
    app_->add_option("--" + name, texts_[name], help)
        ->type_name("")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  [[nodiscard]] bool chosen() const { return app_->parsed(); }
  [[nodiscard]] bool has(const std::string& name) const { return app_->count("--" + name) > 0; }
  [[nodiscard]] std::vector<Given> given() const {
    for (const std::string& extra : app_->remaining()) {
      if (!extra.starts_with("--")) {
        core::fail<halfstep::OptionError>("'", extra,
                                          "' is not an option. Options begin with --; see "
                                          "capstone ",
                                          app_->get_name(), " --help");
      }
      const std::string name = extra.substr(2, extra.find('=') - 2);
      std::vector<std::string_view> names(names_.begin(), names_.end());
      core::fail<halfstep::OptionError>("unknown option --", name, ". Did you mean --",
                                        capstone::nearest(name, names), "?");
    }
    std::vector<Given> result;
    for (const std::string& name : names_) {
      if (app_->count("--" + name) > 0) result.push_back({name, texts_.at(name)});
    }
    return result;
  }

 private:
  CLI::App* app_;
  std::vector<std::string> names_;
  std::map<std::string, std::string> texts_;
};

int run(int argc, char** argv) {
  CLI::App app("capstone: a small GPT trained on a text, with halfstep", "capstone");
  app.footer(
      "exit codes: 0 done; 1 the run failed (non-finite loss, full disk, no memory, a target that "
      "leaked);\n"
      "2 the command line or the input cannot be used; 130 after SIGINT and 143 after SIGTERM, "
      "with a checkpoint\n"
      "written for --resume; a second signal ends the program at once, without; of several ranks, "
      "where one was\n"
      "killed, 128 and its signal. Results in --out change only\n"
      "on 0, or if the target leaked or the report could not be written; checkpoints stay.");
  app.set_version_flag("--version", HALFSTEP_VERSION);
  Command train(app, "train", "trains; writes weights, tokenizer, metrics and summary to --out",
                capstone::train_fields());
  train.add(
      "resume",
      "directory of a run that was stopped or killed: goes on from its newest whole checkpoint");
  train.add("config",
            "a JSON object whose keys are the long flags; flags come before it, presets after");
  const Command eval(app, "eval", "the exact held-out loss of a finished run",
                     capstone::eval_fields());
  const Command sample(app, "sample", "text from a finished run", capstone::sample_fields());

  if (argc < 2) {
    std::fputs(app.help().c_str(), stderr);
    return 2;
  }
  const std::string_view first = argv[1];
  if (!first.starts_with("-") &&
      std::find(commands.begin(), commands.end(), first) == commands.end()) {
    core::fail<halfstep::OptionError>("unknown command ", first, ". Did you mean ",
                                      capstone::nearest(first, commands), "?");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (train.chosen()) return capstone::train(capstone::resolve(train.given()), train.has("resume"));
  if (eval.chosen())
    capstone::evaluate(capstone::resolve_read(eval.given(), capstone::eval_fields()));
  if (sample.chosen())
    capstone::sample(capstone::resolve_read(sample.given(), capstone::sample_fields()));
  if (eval.chosen() || sample.chosen()) return 0;
  std::fprintf(stderr, "capstone: unknown option %s. Did you mean --help?\n", argv[1]);
  return 2;
}

/// What was printed may still lie in a buffer, and a full disk shows only when that is written.
int flushed(int code) {
  if (code != 0 || (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)) return code;
  std::fprintf(
      stderr,
      "capstone: standard output could not be written. Is its disk full, or its reader gone?\n");
  return 1;
}

}  // namespace

namespace capstone {

int exit_code_of(const std::function<int()>& body) {
  try {
    return flushed(body());
  } catch (const halfstep::PeerError&) {
    throw;
  } catch (const Interrupted& stop) {
    std::fprintf(stderr, "capstone: %s\n", stop.what());
    return 128 + stop.signal;
  } catch (const RunFailed& error) {
    std::fprintf(stderr, "capstone: %s\n", error.what());
    return 1;
  } catch (const halfstep::NumericError& error) {
    std::fprintf(stderr, "capstone: %s\n", error.what());
    return 1;
  } catch (const halfstep::Error& error) {
    std::fprintf(stderr, "capstone: %s\n", error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "capstone: not enough memory; lower --batch, --context or --width\n");
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "capstone: %s\n", error.what());
    return 1;
  }
}

}  // namespace capstone

int main(int argc, char** argv) {
  return capstone::exit_code_of([&] { return run(argc, argv); });
}
