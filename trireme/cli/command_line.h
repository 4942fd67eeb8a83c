// The options and subcommands of a programme. Only command_line.cc includes CLI11, because CLI11
// takes longer to compile than all code that uses it.
#pragma once
#include <trireme/cli/known_commands.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trireme::cli {

// One command. Copies refer to the same command.
class Command {
 public:
  // Adds an option. A name without dashes is an argument that is known by its place. `value` keeps
  // its content unless the option is given. T is int, int64_t, std::string, std::filesystem::path,
  // std::optional<int> or std::vector<std::string>.
  template <typename T>
  void option(const std::string& name, T& value, const std::string& help = "");
  template <typename T>
  void required(const std::string& name, T& value, const std::string& help = "");
  // Each use of the option adds one value.
  void repeated(const std::string& name, std::vector<std::string>& values,
                const std::string& help = "");
  void flag(const std::string& name, bool& value, const std::string& help = "");
  // Forbids `name` and `other` together. Both must have been added before.
  void excludes(const std::string& name, const std::string& other);
  // Command lines that the help ends with, below the note.
  void examples(std::vector<std::string> lines, const std::string& note = "");
  // The command takes settings by --set. `key_of` returns the key of the configuration that a
  // word means, or an empty text; it is asked about options that the command does not have.
  void settings(std::function<std::string(const std::string&)> key_of);

  // Adds a subcommand. A command that has subcommands must be called with one of them.
  Command subcommand(const std::string& name, const std::string& description);
  // Sets the function to call if this command is chosen. It returns the exit code.
  void action(std::function<int()> run);

 protected:
  struct Notes;  // Facts that the parser does not keep.
  Command(CLI::App* app, Notes* notes) : app_(app), notes_(notes) {}

  CLI::App* app_;
  Notes* notes_;
};

// A whole programme.
class CommandLine : public Command {
 public:
  // `name` is the programme's in its help and messages.
  CommandLine(const std::string& name, const std::string& description);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  void version(const std::string& text);
  // Adds the command "help COMMAND...".
  void help_command();
  // Everything that was added up to now.
  KnownCommand known() const;
  // Reads the words behind the programme's name, and sets the values that they give. Returns the
  // action that they choose, which may be to print a help. Throws Error(invalid_argument) about
  // the first word that is wrong, with the nearest right one. Call it once.
  std::function<int()> parse(const std::vector<std::string>& words);
  // Reads the arguments and runs the action. Throws what both throw.
  int run(int argc, char** argv);

 private:
  int print_help(const KnownCommand& command) const;

  std::unique_ptr<Notes> own_notes_;
  std::string version_;
};

}  // namespace trireme::cli
