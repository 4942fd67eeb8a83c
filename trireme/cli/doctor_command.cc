// `trireme doctor`: what was understood, and what is compiled in. The worker answers, since it is
// the one that computes.
#include <fmt/format.h>
#include <trireme/cli/commands.h>

namespace trireme::cli {

void add_doctor(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Print what was understood of the environment and what is compiled in");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "As JSON");
  command->footer("Example: trireme launch --workers 2 -- trireme doctor");
  command->callback([json, &action] {
    action = [json] {
      std::vector<std::string> words{"doctor"};
      if (*json) words.push_back("--json");
      return become_worker(std::move(words));
    };
  });
}

}  // namespace trireme::cli
