#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/cli/command_line.h>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

namespace trireme::cli {

template <typename T>
void Command::option(const std::string& name, T& value, const std::string& help) {
  app_->add_option(name, value, help);
}

template <typename T>
void Command::required(const std::string& name, T& value, const std::string& help) {
  app_->add_option(name, value, help)->required();
}

// NOLINTBEGIN(bugprone-macro-parentheses): a type has no parentheses.
#define TRIREME_OPTION(Type)                                                          \
  template void Command::option<Type>(const std::string&, Type&, const std::string&); \
  template void Command::required<Type>(const std::string&, Type&, const std::string&);
TRIREME_OPTION(int)
TRIREME_OPTION(int64_t)
TRIREME_OPTION(std::string)
TRIREME_OPTION(std::filesystem::path)
TRIREME_OPTION(std::optional<int>)
TRIREME_OPTION(std::vector<std::string>)
#undef TRIREME_OPTION
// NOLINTEND(bugprone-macro-parentheses)

void Command::repeated(const std::string& name, std::vector<std::string>& values,
                       const std::string& help, bool one_each) {
  app_->add_option(name, values, help)->expected(1)->take_all()->allow_extra_args(!one_each);
}

void Command::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

void Command::excludes(const std::string& name, const std::string& other) {
  app_->get_option(name)->excludes(app_->get_option(other));
}

void Command::footer(const std::string& text) { app_->footer(text); }

Command Command::subcommand(const std::string& name, const std::string& description) {
  app_->require_subcommand(1);
  return {app_->add_subcommand(name, description), chosen_};
}

void Command::action(std::function<int()> run) {
  app_->callback([chosen = chosen_, run = std::move(run)] { *chosen = run; });
}

CommandLine::CommandLine(const std::string& description)
    : Command(new CLI::App(description), &chosen_action_) {}
CommandLine::~CommandLine() { delete app_; }

void CommandLine::version(const std::string& text) { app_->set_version_flag("--version", text); }

int CommandLine::run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error);  // --help, --version
    fmt::print(stderr, "trireme: {}; try: trireme --help\n", error.what());
    return kExitUsage;
  }
  return chosen_action_();
}

}  // namespace trireme::cli
