// `trireme doctor`: prints what Trireme understood of the environment, and what is compiled in.
// The worker answers, because it is the programme that trains.
#include <fmt/format.h>
#include <trireme/cli/commands.h>
#include <memory>

namespace trireme::cli {

void add_doctor(Command app) {
  Command command = app.subcommand(
      "doctor", "Print what Trireme understood of the environment, and what is compiled in");
  auto json = std::make_shared<bool>(false);
  command.flag("--json", *json, "Print JSON");
  command.examples({"trireme doctor", "trireme launch --workers 2 -- trireme doctor"});
  command.action([json]() -> int {
    std::vector<std::string> words{"doctor"};
    if (*json) words.push_back("--json");
    become("trireme-worker", /*library=*/"", std::move(words));
  });
}

}  // namespace trireme::cli
