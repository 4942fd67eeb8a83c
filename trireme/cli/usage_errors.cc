#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/units.h>
#include <trireme/cli/usage_errors.h>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <limits>

namespace trireme::cli {
namespace {

constexpr size_t kLongestWord = 64;  // A longer word is never near, and the search is quadratic.

Error usage_error(const std::string& what, const std::string& remedy) {
  return {ErrorCode::invalid_argument, "cli", what, remedy};
}

std::string nearest_of(const std::string& word, const std::vector<std::string_view>& known) {
  return word.size() > kLongestWord ? "" : nearest_word(word, known.data(), known.size());
}

// Calls visit(command) for the command and for all below it.
template <typename Visit>
void for_each_command(const KnownCommand& command, const Visit& visit) {
  visit(command);
  for (const KnownCommand& below : command.commands) for_each_command(below, visit);
}

// The bytes of dashes at the beginning. Word processors turn "--" into U+2013 and its neighbours.
size_t length_of_dashes(std::string_view word) {
  size_t length = 0;
  for (;;) {
    const std::string_view rest = word.substr(length);
    const bool is_wide =
        rest.starts_with("\u2212") || (rest >= "\u2010" && rest < "\u2016" && rest.size() > 2);
    if (!is_wide && !rest.starts_with('-')) return length;
    length += is_wide ? 3 : 1;
  }
}

// The name in an option as a person may write it: without dashes, in small letters, with hyphens.
std::string bare_name(std::string_view word) {
  word = word.substr(0, word.find('='));
  std::string bare(word.substr(length_of_dashes(word)));
  for (char& c : bare)
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return bare;
}

// The option of the command that is nearest, or an empty text. The beginning of a name counts as
// near if no other name begins so.
std::string nearest_option(const KnownCommand& command, const std::string& word) {
  const std::string bare = bare_name(word);
  std::vector<std::string_view> names;
  for (const KnownOption& option : command.options)
    names.push_back(std::string_view(option.name).substr(2));
  if (std::ranges::find(names, bare) != names.end()) return "--" + bare;
  const auto begins = [&](std::string_view name) { return name.starts_with(bare); };
  if (!bare.empty() && std::ranges::count_if(names, begins) == 1)
    return fmt::format("--{}", *std::ranges::find_if(names, begins));
  const std::string near = nearest_of(bare, names);
  return near.empty() ? "" : "--" + near;
}

// The value that was given with an option: behind "=", or as the next word.
std::string value_behind(const UnknownOption& unknown) {
  if (const size_t equals = unknown.word.find('='); equals != std::string::npos)
    return unknown.word.substr(equals + 1);
  const bool follows = !unknown.rest.empty() && !unknown.rest.front().starts_with('-');
  return follows ? unknown.rest.front() : "VALUE";
}

// The commands other than this one that have the option.
std::vector<std::string> commands_with(const UnknownOption& unknown) {
  const std::string name = unknown.word.substr(0, unknown.word.find('='));
  std::vector<std::string> paths;
  for_each_command(unknown.root, [&](const KnownCommand& other) {
    if (other.find_option(name) != nullptr) paths.push_back(other.path);
  });
  return paths;
}

std::string listed_at_most(std::vector<std::string> words, size_t most) {
  if (words.size() > most + 1) {
    const std::string others = fmt::format("{} other commands", words.size() - most);
    words.resize(most);
    words.push_back(others);
  }
  return listed(words);
}

// The command that the words behind an option name, if the option belongs to that one.
const KnownCommand* command_behind(const UnknownOption& unknown) {
  const KnownCommand* command = &unknown.command;
  for (const std::string& word : unknown.rest)
    if (const KnownCommand* const below = command->find_command(word)) command = below;
  return command != &unknown.command && !nearest_option(*command, unknown.word).empty() ? command
                                                                                        : nullptr;
}

std::string example_or_help(const KnownCommand& command) {
  return command.examples.empty() ? help_command_of(command) : command.examples.front();
}

// Whether the word is "section.key=value".
bool is_setting(std::string_view word) {
  const std::string_view key = word.substr(0, word.find('='));
  const auto is_of_key = [](unsigned char c) {
    return c == '.' || c == '_' || std::isalnum(c) != 0;
  };
  return key.size() < word.size() && key.find('.') != std::string_view::npos &&
         !key.starts_with('.') && std::ranges::all_of(key, is_of_key);
}

bool is_argument(const KnownOption& option) { return !option.name.starts_with('-'); }

}  // namespace

std::string in_quotes(std::string_view word) {
  constexpr size_t kLongestShown = 80;
  std::string text(word.substr(0, kLongestShown));
  for (char& c : text)
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = '?';
  return fmt::format("'{}{}'", text, word.size() > kLongestShown ? "..." : "");
}

std::string listed(const std::vector<std::string>& words, std::string_view last) {
  if (words.size() < 2) return words.empty() ? "" : words.front();
  return fmt::format("{} {} {}", fmt::join(words.begin(), words.end() - 1, ", "), last,
                     words.back());
}

std::string help_command_of(const KnownCommand& command) {
  const size_t end = std::min(command.path.find(' '), command.path.size());
  return command.path.substr(0, end) + " help" + command.path.substr(end);
}

Error unknown_command(const KnownCommand& root, const KnownCommand& group,
                      const std::string& word) {
  const std::string what = fmt::format("{} has no command {}", group.path, in_quotes(word));
  if (word == "help" || group.commands.empty()) return usage_error(what, help_command_of(group));
  std::vector<std::string_view> names;
  for (const KnownCommand& command : group.commands) names.push_back(command.name());
  if (const std::string near = nearest_of(word, names); !near.empty())
    return usage_error(what, fmt::format("{} {}", group.path, near));
  // Perhaps the command above it was left out, or is another one.
  std::vector<const KnownCommand*> all;
  for_each_command(root, [&](const KnownCommand& command) { all.push_back(&command); });
  names.clear();
  for (const KnownCommand* const command : all) names.push_back(command->name());
  const std::string near = nearest_of(word, names);
  for (const KnownCommand* const command : all)
    if (command->name() == near && command != &root) return usage_error(what, command->path);
  return usage_error(what, help_command_of(group) + ", which lists the commands");
}

Error missing_command(const KnownCommand& group) {
  std::vector<std::string> names;
  for (const KnownCommand& command : group.commands) names.emplace_back(command.name());
  return usage_error(fmt::format("{} needs a command behind it, and there is none", group.path),
                     fmt::format("{} {}", group.path, listed(names, "or")));
}

Error unknown_option(const UnknownOption& unknown) {
  const KnownCommand& command = unknown.command;
  const std::string name = unknown.word.substr(0, unknown.word.find('='));
  const std::string shown =
      name.find_first_of(" \t\n") == std::string::npos && name.size() < kLongestWord
          ? name
          : in_quotes(name);
  if (const KnownCommand* const behind = command_behind(unknown))
    return usage_error(
        fmt::format("{} has no option {}, which belongs behind the command", command.path, shown),
        fmt::format("{} {}", behind->path, nearest_option(*behind, unknown.word)));
  std::string what = fmt::format("{} has no option {}", command.path, shown);
  if (!name.starts_with('-')) what += ", and its dash is not the hyphen of the keyboard";
  std::vector<std::string> remedies;
  if (const std::string near = nearest_option(command, unknown.word); !near.empty())
    remedies.push_back(near);
  const std::string bare = bare_name(name);
  const std::string value = value_behind(unknown);
  const bool is_spelling = !remedies.empty() && remedies.front() == "--" + bare;
  if (command.key_of && !is_spelling)
    if (const std::string key = command.key_of(bare); !key.empty())
      remedies.push_back(fmt::format("--set {}={}", key, value));
  for (const KnownOption& argument : command.arguments)
    if (argument.name == bare)
      remedies.push_back(fmt::format("{} {}, without {}", command.path, value, shown));
  if (!unknown.program.empty()) {
    what += fmt::format(", and no -- stands before {}", in_quotes(unknown.program));
    remedies.push_back(
        fmt::format("{} ... -- {} {} ...", command.path, unknown.program, unknown.word));
  }
  if (const auto others = commands_with(unknown); !others.empty()) {
    constexpr size_t kMostShown = 3;
    what += fmt::format(", but {} {} it", listed_at_most(others, kMostShown),
                        others.size() == 1 ? "has" : "have");
    if (others.size() == 1 && remedies.empty())
      remedies.push_back(fmt::format("{} {}", others.front(), name));
  }
  if (remedies.empty())
    for_each_command(command, [&](const KnownCommand& below) {
      const std::string near = nearest_option(below, unknown.word);
      if (remedies.empty() && !near.empty())
        remedies.push_back(fmt::format("{} {}", below.path, near));
    });
  if (remedies.empty()) remedies.push_back(help_command_of(command) + ", which lists the options");
  return usage_error(what, fmt::format("{}", fmt::join(remedies, ", or ")));
}

Error unexpected_argument(const KnownCommand& command, const std::vector<std::string>& given,
                          const std::string& word) {
  std::vector<std::string> names, values;
  for (const KnownOption& argument : command.arguments) names.push_back(argument.name);
  for (const std::string& value : given) values.push_back(in_quotes(value));
  const std::string rule =
      names.empty()
          ? "it takes no arguments"
          : fmt::format("its {} {} {}", names.size() == 1 ? "argument" : "arguments",
                        listed(names),
                        fmt::format("{} {}", names.size() == 1 ? "is" : "are", listed(values)));
  const bool is_option_name = command.find_option("--" + word) != nullptr;
  return usage_error(fmt::format("{} does not expect {}: {}", command.path, in_quotes(word), rule),
                     is_option_name ? "--" + word
                                    : fmt::format("leave out {}, or {}", in_quotes(word),
                                                  help_command_of(command)));
}

Error missing_argument(const KnownCommand& command, const KnownOption& argument) {
  return usage_error(fmt::format("{} lacks the {} {}", command.path,
                                 is_argument(argument) ? "argument" : "option", argument.name),
                     example_or_help(command));
}

Error empty_argument(const KnownCommand& command, const KnownOption& argument) {
  return usage_error(fmt::format("the argument {} of {} is empty", argument.name, command.path),
                     example_or_help(command));
}

Error missing_value(const KnownOption& option, const std::string& next) {
  const std::string follows = next.empty() ? "" : fmt::format(": {} follows", next);
  return usage_error(
      fmt::format("{} has no value{}", option.name, follows),
      fmt::format("{} {}", option.name, option.takes == Takes::text ? "VALUE" : "NUMBER"));
}

Error value_of_flag(const KnownOption& flag, const std::string& value) {
  return usage_error(fmt::format("{} takes no value, and has {}", flag.name, in_quotes(value)),
                     flag.name + " alone");
}

Error given_twice(const KnownOption& option, const std::string& first, const std::string& second) {
  return usage_error(fmt::format("{} is given twice, as {} and as {}", option.name,
                                 in_quotes(first), in_quotes(second)),
                     "only one of them");
}

void check_argument_word(const KnownCommand& root, const KnownCommand& command,
                         const std::string& word, std::span<const std::string> rest) {
  const bool has_wide_dash = !word.starts_with('-') && length_of_dashes(word) > 0;
  if (has_wide_dash && !nearest_option(command, word).empty())
    throw unknown_option({root, command, word, rest, {}});
  if (command.key_of && is_setting(word))
    throw usage_error(fmt::format("{} is a setting of the configuration without --set before it",
                                  in_quotes(word)),
                      "--set " + word);
}

void check_value(const KnownCommand& command, const KnownOption& option,
                 const std::string& value) {
  if (option.takes != Takes::int32 && option.takes != Takes::int64) return;
  const std::string what =
      is_argument(option)
          ? fmt::format("the argument {} of {} is {}", option.name, command.path, in_quotes(value))
          : fmt::format("{} is {}", option.name, in_quotes(value));
  char* end = nullptr;
  errno = 0;
  constexpr int kAnyBase = 0;  // As CLI11 reads numbers: 0x10 is 16.
  const long long number = std::strtoll(value.c_str(), &end, kAnyBase);
  if (value.empty() || *end != '\0' || std::isspace(static_cast<unsigned char>(value[0])) != 0)
    throw usage_error(
        what + ", which is not a whole number",
        is_argument(option) ? example_or_help(command) : option.name + " NUMBER, such as 2");
  using Int = std::numeric_limits<int>;
  if (errno == ERANGE ||
      (option.takes == Takes::int32 && (number < Int::min() || number > Int::max())))
    throw usage_error(
        fmt::format("{}, which is too {} a number", what, value[0] == '-' ? "small" : "large"),
        option.takes == Takes::int32 ? fmt::format("{} to {}", Int::min(), Int::max())
                                     : "a number of 64 bits");
}

}  // namespace trireme::cli
