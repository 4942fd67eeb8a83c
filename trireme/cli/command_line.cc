#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/cli/command_line.h>
#include <trireme/cli/usage_errors.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <type_traits>
#include <utility>

namespace trireme::cli {

struct Command::Notes {
  std::function<int()> chosen;
  std::map<const CLI::Option*, Takes> takes;  // The options that take something else than text.
  std::map<const CLI::App*, std::vector<std::string>> examples;
  std::map<const CLI::App*, std::function<std::string(const std::string&)>> key_of;
};

template <typename T>
void Command::option(const std::string& name, T& value, const std::string& help) {
  const CLI::Option* const added = app_->add_option(name, value, help);
  if constexpr (std::is_same_v<T, int> || std::is_same_v<T, std::optional<int>>)
    notes_->takes[added] = Takes::int32;
  if constexpr (std::is_same_v<T, int64_t>) notes_->takes[added] = Takes::int64;
}

template <typename T>
void Command::required(const std::string& name, T& value, const std::string& help) {
  option(name, value, help);
  app_->get_option(name)->required();
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
                       const std::string& help) {
  app_->add_option(name, values, help)->expected(1)->take_all()->allow_extra_args(false);
}

void Command::flag(const std::string& name, bool& value, const std::string& help) {
  notes_->takes[app_->add_flag(name, value, help)] = Takes::nothing;
}

void Command::excludes(const std::string& name, const std::string& other) {
  app_->get_option(name)->excludes(app_->get_option(other));
}

void Command::examples(std::vector<std::string> lines, const std::string& note) {
  const bool is_one = lines.size() == 1;
  app_->footer(fmt::format("{}{}{}{}", note, note.empty() ? "" : "\n",
                           is_one ? "Example: " : "Examples:\n  ", fmt::join(lines, "\n  ")));
  notes_->examples[app_] = std::move(lines);
}

void Command::settings(std::function<std::string(const std::string&)> key_of) {
  notes_->key_of[app_] = std::move(key_of);
}

Command Command::subcommand(const std::string& name, const std::string& description) {
  app_->require_subcommand(1);
  CLI::App* const added = app_->add_subcommand(name, description);
  added->footer("");  // Otherwise the subcommand takes over the footer of this one.
  return {added, notes_};
}

void Command::action(std::function<int()> run) {
  app_->callback([notes = notes_, run = std::move(run)] { notes->chosen = run; });
}

CommandLine::CommandLine(const std::string& name, const std::string& description)
    : Command(new CLI::App(description, name), nullptr), own_notes_(std::make_unique<Notes>()) {
  notes_ = own_notes_.get();
}
CommandLine::~CommandLine() { delete app_; }

void CommandLine::version(const std::string& text) {
  app_->set_version_flag("--version", text, "Print the version and exit");
  version_ = text;
}

void CommandLine::help_command() {
  const auto words = std::make_shared<std::vector<std::string>>();
  Command command = subcommand("help", "Print the help of a command");
  command.option("command", *words, "The words of the command, such as ckpt inspect");
  command.examples({fmt::format("{} help {}", app_->get_name(),
                                app_->get_subcommands(nullptr).front()->get_name())});
  command.action([this, words] {
    const KnownCommand root = known();
    return print_help(command_named(root, *words));
  });
}

namespace {

KnownOption known_option(const CLI::Option& option, Takes takes) {
  const bool is_argument = option.get_positional();
  // The first word of "--help" may be short: "-h,--help".
  KnownOption known{is_argument ? option.get_name() : "--" + option.get_lnames().front(),
                    takes,
                    option.get_required(),
                    is_argument
                        ? option.get_items_expected_max() > 1
                        : option.get_multi_option_policy() != CLI::MultiOptionPolicy::Throw,
                    {}};
  for (const CLI::Option* const other : option.get_excludes())
    known.excludes.push_back(other->get_name());
  return known;
}

}  // namespace

KnownCommand CommandLine::known() const {
  const auto describe = [this](const auto& self, const CLI::App& app,
                               const std::string& above) -> KnownCommand {
    KnownCommand command;
    command.path = above + app.get_name();
    for (const CLI::Option* const option : app.get_options()) {
      const auto noted = notes_->takes.find(option);
      const Takes takes = noted != notes_->takes.end()      ? noted->second
                          : option->get_expected_max() == 0 ? Takes::nothing
                                                            : Takes::text;
      (option->get_positional() ? command.arguments : command.options)
          .push_back(known_option(*option, takes));
    }
    for (const CLI::App* const below : app.get_subcommands(nullptr))
      command.commands.push_back(self(self, *below, command.path + " "));
    if (const auto found = notes_->examples.find(&app); found != notes_->examples.end())
      command.examples = found->second;
    if (const auto found = notes_->key_of.find(&app); found != notes_->key_of.end())
      command.key_of = found->second;
    return command;
  };
  return describe(describe, *app_, "");
}

int CommandLine::print_help(const KnownCommand& command) const {
  const CLI::App* app = app_;
  std::istringstream words(command.path);
  std::string word, above;
  words >> word;  // The programme.
  while (words >> word) {
    above += (above.empty() ? "" : " ") + app->get_name();
    app = app->get_subcommand(word);
  }
  // The formatter's own way appends the help of a command that was parsed.
  fmt::print("{}", app->get_formatter()->make_help(
                       app, above.empty() ? app->get_name() : above + " " + app->get_name(),
                       CLI::AppFormatMode::Normal));
  return kExitOk;
}

std::function<int()> CommandLine::parse(const std::vector<std::string>& words) {
  const auto root = std::make_shared<const KnownCommand>(known());
  const Request request = understand(*root, words);
  if (request.wants_help)
    return [this, root, command = request.command] { return print_help(*command); };
  if (request.wants_version)
    return [text = version_] {
      fmt::print("{}\n", text);
      return kExitOk;
    };
  try {
    // The parser takes its words from the back.
    app_->parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::invalid_argument, "cli", error.what(),
                help_command_of(*request.command));
  }
  return notes_->chosen;
}

int CommandLine::run(int argc, char** argv) {
  return parse(std::vector<std::string>(argv + 1, argv + argc))();
}

}  // namespace trireme::cli
