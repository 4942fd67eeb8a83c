// The commands and options that a programme knows, as facts. Pure: messages about a command line
// and tests use them without the parser.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::cli {

enum class Takes { nothing, text, int32, int64 };

// The name of an argument that takes the words of another programme.
inline constexpr const char* kProgramArgument = "program";

struct KnownOption {
  std::string name;  // "--workers"; for an argument, which is known by its place, "config".
  Takes takes = Takes::nothing;
  bool is_required = false;
  bool is_repeated = false;           // It may be given several times. An argument takes the rest.
  std::vector<std::string> excludes;  // Names of options that must not be beside it.
};

struct KnownCommand {
  std::string path;  // "trireme ckpt inspect"
  std::vector<KnownOption> options, arguments;
  std::vector<KnownCommand> commands;  // If there are any, one of them must follow.
  std::vector<std::string> examples;   // Whole command lines.
  // The key of the configuration that a word may mean, or an empty text. Empty: the command takes
  // no --set.
  std::function<std::string(const std::string&)> key_of;

  std::string_view name() const;  // "inspect"
  const KnownOption* find_option(std::string_view option) const;
  const KnownCommand* find_command(std::string_view command) const;
};

// The request of a command line.
struct Request {
  const KnownCommand* command = nullptr;
  bool wants_help = false, wants_version = false;
};

// Reads the words behind the programme's name from left to right. Throws Error(invalid_argument)
// about the first word that is wrong, with the nearest right one. If the words ask for help, only
// an unknown command is refused. `root` must outlive the request.
Request understand(const KnownCommand& root, std::span<const std::string> words);

// The command that the words name, as "trireme help" gets them. Throws Error(invalid_argument)
// about a word that is not the name of a command.
const KnownCommand& command_named(const KnownCommand& root, std::span<const std::string> words);

}  // namespace trireme::cli
