// The options and subcommands of a programme. Only command_line.cc includes CLI11, because CLI11
// takes longer to compile than all code that uses it.
#pragma once
#include <functional>
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
  // Each use of the option adds a value. With `one_each` it takes no more than one, so that "--"
  // after it begins the arguments that are known by their places.
  void repeated(const std::string& name, std::vector<std::string>& values,
                const std::string& help = "", bool one_each = false);
  void flag(const std::string& name, bool& value, const std::string& help = "");
  // Forbids `name` and `other` together. Both must have been added before.
  void excludes(const std::string& name, const std::string& other);
  void footer(const std::string& text);

  // Adds a subcommand. A command that has subcommands must be called with one of them.
  Command subcommand(const std::string& name, const std::string& description);
  // Sets the function to call if this command is chosen. It returns the exit code.
  void action(std::function<int()> run);

 protected:
  Command(CLI::App* app, std::function<int()>* chosen) : app_(app), chosen_(chosen) {}

  CLI::App* app_;

 private:
  std::function<int()>* chosen_;
};

// A whole programme.
class CommandLine : public Command {
 public:
  explicit CommandLine(const std::string& description);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  void version(const std::string& text);
  // Runs the chosen action. If it does not understand the arguments, it prints why and returns
  // kExitUsage.
  int run(int argc, char** argv);

 private:
  std::function<int()> chosen_action_;
};

}  // namespace trireme::cli
