#include <trireme/cli/known_commands.h>
#include <trireme/cli/usage_errors.h>
#include <algorithm>
#include <cctype>
#include <utility>

namespace trireme::cli {
namespace {

bool is_help(std::string_view word) { return word == "-h" || word == "--help"; }

// A negative number is a value.
bool is_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && word != "--" &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

// The words behind "--" belong to another programme, and may ask that one for help.
bool ask_for_help(std::span<const std::string> words) {
  return std::any_of(words.begin(), std::ranges::find(words, "--"), is_help);
}

std::string kind_of(const KnownOption& option) {
  return option.name.starts_with('-') ? "" : "the argument ";
}

// Reads words from left to right, and throws about the first one that is wrong.
class WordReader {
 public:
  WordReader(const KnownCommand& root, std::span<const std::string> words)
      : root_(root), command_(&root), rest_(words), wants_help_(ask_for_help(words)) {}

  Request read() {
    while (!rest_.empty()) {
      const std::string word = next();
      const bool in_group = !command_->commands.empty();
      if (in_group && word == "--version" && command_->find_option(word) != nullptr)
        return {command_, false, true};
      const bool is_name = in_group && (is_help(word) || !is_option(word));
      if (wants_help_ && !is_name) break;
      if (in_group)
        take_command(word);
      else if (!only_arguments_ && word == "--")
        only_arguments_ = true;
      else if (!only_arguments_ && is_option(word))
        take_option(word);
      else
        take_argument(word);
    }
    if (!wants_help_) check_whole();
    return {command_, wants_help_, false};
  }

 private:
  std::string next() {
    std::string word = rest_.front();
    rest_ = rest_.subspan(1);
    return word;
  }

  void take_command(const std::string& word) {
    if (is_help(word)) return;
    if (is_option(word)) throw unknown_option({root_, *command_, word, rest_, {}});
    const KnownCommand* const found = command_->find_command(word);
    if (found == nullptr) throw unknown_command(root_, *command_, word);
    command_ = found;
  }

  void take_option(const std::string& word) {
    const size_t equals = word.find('=');
    const KnownOption* const option = command_->find_option(word.substr(0, equals));
    if (option == nullptr) {
      const bool takes_program =
          !command_->arguments.empty() && command_->arguments.back().name == kProgramArgument;
      throw unknown_option({root_, *command_, word, rest_,
                            takes_program && !arguments_.empty() ? arguments_.front() : ""});
    }
    if (option->takes == Takes::nothing) {
      if (equals != std::string::npos) throw value_of_flag(*option, word.substr(equals + 1));
      given_.emplace_back(option, "");
      return;
    }
    std::string value;
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
      if (value.empty()) throw missing_value(*option, "");
    } else {
      // A value that begins with dashes is given as --option=VALUE.
      if (rest_.empty() || rest_.front().starts_with("--"))
        throw missing_value(*option, rest_.empty() ? "" : rest_.front());
      value = next();
    }
    check_value(*command_, *option, value);
    for (const auto& [other, first] : given_)
      if (other == option && !option->is_repeated) throw given_twice(*option, first, value);
    given_.emplace_back(option, value);
  }

  void take_argument(const std::string& word) {
    check_argument_word(root_, *command_, word, rest_);
    const std::vector<KnownOption>& known = command_->arguments;
    if (known.empty() || (arguments_.size() >= known.size() && !known.back().is_repeated))
      throw unexpected_argument(*command_, arguments_, word);
    const KnownOption& argument = known[std::min(arguments_.size(), known.size() - 1)];
    if (word.empty() && !argument.is_repeated) throw empty_argument(*command_, argument);
    check_value(*command_, argument, word);
    arguments_.push_back(word);
    given_.emplace_back(&argument, word);
  }

  void check_whole() const {
    if (!command_->commands.empty()) throw missing_command(*command_);
    const auto is_given = [this](std::string_view name) {
      return std::ranges::any_of(given_,
                                 [&](const auto& pair) { return pair.first->name == name; });
    };
    for (const auto* const known : {&command_->arguments, &command_->options})
      for (const KnownOption& option : *known)
        if (option.is_required && !is_given(option.name))
          throw missing_argument(*command_, option);
    for (const auto& [option, value] : given_)
      for (const std::string& other : option->excludes)
        if (is_given(other))
          throw Error(ErrorCode::invalid_argument, "cli",
                      kind_of(*option) + option->name + " and " + other + " exclude each other",
                      "only one of them");
  }

  const KnownCommand& root_;
  const KnownCommand* command_;
  std::span<const std::string> rest_;
  const bool wants_help_;
  bool only_arguments_ = false;  // After "--".
  std::vector<std::string> arguments_;
  std::vector<std::pair<const KnownOption*, std::string>> given_;  // With their values, in order.
};

}  // namespace

std::string_view KnownCommand::name() const {
  return std::string_view(path).substr(path.rfind(' ') + 1);
}

const KnownOption* KnownCommand::find_option(std::string_view option) const {
  const auto found = std::ranges::find(options, option, &KnownOption::name);
  return found == options.end() ? nullptr : &*found;
}

const KnownCommand* KnownCommand::find_command(std::string_view command) const {
  const auto found = std::ranges::find(commands, command, &KnownCommand::name);
  return found == commands.end() ? nullptr : &*found;
}

Request understand(const KnownCommand& root, std::span<const std::string> words) {
  return WordReader(root, words).read();
}

const KnownCommand& command_named(const KnownCommand& root, std::span<const std::string> words) {
  const KnownCommand* command = &root;
  for (const std::string& word : words) {
    const KnownCommand* const found = command->find_command(word);
    if (found == nullptr) throw unknown_command(root, *command, word);
    command = found;
  }
  return *command;
}

}  // namespace trireme::cli
