// The messages about a command line that a programme does not understand. Each names the word that
// is wrong, and the nearest right one.
#pragma once
#include <trireme/base/error.h>
#include <trireme/cli/known_commands.h>
#include <string>
#include <vector>

namespace trireme::cli {

// A word of the user for a message: in quotes, on one line, and not too long.
std::string in_quotes(std::string_view word);
// "a", "a and b", "a, b and c"
std::string listed(const std::vector<std::string>& words, std::string_view last = "and");
// "trireme help ckpt inspect"
std::string help_command_of(const KnownCommand& command);

Error unknown_command(const KnownCommand& root, const KnownCommand& group,
                      const std::string& word);
Error missing_command(const KnownCommand& group);

// An option that `command` does not have.
struct UnknownOption {
  const KnownCommand& root;
  const KnownCommand& command;
  std::string word;                   // As it was given, such as "--wrkers=2".
  std::span<const std::string> rest;  // The words behind it.
  std::string program;  // The programme that `command` starts, if it was named before.
};
Error unknown_option(const UnknownOption& unknown);

// An argument more than the command takes; `given` are the others.
Error unexpected_argument(const KnownCommand& command, const std::vector<std::string>& given,
                          const std::string& word);
Error missing_argument(const KnownCommand& command, const KnownOption& argument);
Error empty_argument(const KnownCommand& command, const KnownOption& argument);

// `next` is the option that stands where the value belongs, if any.
Error missing_value(const KnownOption& option, const std::string& next);
Error value_of_flag(const KnownOption& flag, const std::string& value);
Error given_twice(const KnownOption& option, const std::string& first, const std::string& second);
// Throws if an argument was meant as an option: a setting without --set before it, or a name
// behind a dash that is not a hyphen, as word processors make it.
void check_argument_word(const KnownCommand& root, const KnownCommand& command,
                         const std::string& word, std::span<const std::string> rest);
// Throws if the option or the argument cannot take the value.
void check_value(const KnownCommand& command, const KnownOption& option, const std::string& value);

}  // namespace trireme::cli
