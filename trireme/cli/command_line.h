// The options and subcommands of a programme. Only command_line.cc includes CLI11, which takes
// longer to compile than all that uses it.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trireme::cli {

// One command. Copies are the same command.
class Command {
 public:
  // A name without dashes is an argument that is known by its place. `value` keeps what it holds
  // unless the option is given. T: int, int64_t, std::string, std::filesystem::path,
  // std::optional<int> or std::vector<std::string>.
  template <typename T>
  void option(const std::string& name, T& value, const std::string& help = "");
  template <typename T>
  void required(const std::string& name, T& value, const std::string& help = "");
  // Each use of the option adds one value.
  void repeated(const std::string& name, std::vector<std::string>& values,
                const std::string& help = "");
  void flag(const std::string& name, bool& value, const std::string& help = "");
  // `name` and `other` cannot be given together; both are known already.
  void excludes(const std::string& name, const std::string& other);
  void footer(const std::string& text);

  // A command with subcommands needs one of them.
  Command subcommand(const std::string& name, const std::string& description);
  // Runs when this command was asked for; returns the exit code.
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
  // Runs the chosen action. Words that are not understood: says so, and returns kExitUsage.
  int run(int argc, char** argv);

 private:
  std::function<int()> chosen_action_;
};

}  // namespace trireme::cli
