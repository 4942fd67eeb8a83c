// `trireme data`: the files of a data set, and how a run used its data, without LibTorch.
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/data_files_commands.h>
#include <trireme/cli/serve_arguments.h>
#include <trireme/data/pipeline/stage.h>
#include <trireme/net/message.h>
#include <trireme/run/data_service.h>
#include <trireme/train/ledger_audit.h>

namespace trireme::cli {
namespace {

int audit(const std::vector<std::string>& runs, bool json) {
  std::vector<std::filesystem::path> logs;
  for (const std::string& run : runs)
    for (auto& log : logs_of(run)) logs.push_back(std::move(log));
  const LedgerAudit audit = audit_logs(logs);
  if (json)
    fmt::print("{}\n", audit.to_json().dump(2));
  else
    fmt::print("{}", audit.describe());
  return audit.passed() ? kExitOk : kExitFailed;
}

// Checks what can be checked without LibTorch, and becomes the server.
int serve_data(const ServeArguments& arguments) {
  net::parse_endpoint(arguments.listen);
  const Config config = load_config(arguments.source);
  data_token();
  std::vector<std::string> words = arguments.words();
  words.insert(words.begin(), "data-serve");
  become("trireme-worker", config.library, std::move(words));
}

}  // namespace

void add_data(Command app) {
  Command command = app.subcommand(
      "data", "Index, check and show the files of a data set, and check how a run used them");
  command.examples(
      {"trireme data head train.csv --count 2", "trireme data audit runs/digits-20260131-101500"});
  add_data_files(command);
  add_data_pack(command);
  add_data_cache(command);
  Command stages = command.subcommand("stages", "Print the table of the stages of data.stages");
  stages.examples({"trireme data stages"});
  stages.action([] {
    fmt::print("{}", data::table_of_stages());
    return kExitOk;
  });
  Command serve = command.subcommand(
      "serve", "Make the samples of runs, on this host or another one (data.service: HOST:PORT)");
  auto served = std::make_shared<ServeArguments>();
  served->add_to(serve);
  serve.examples({"trireme data serve images.yaml --listen 10.0.0.7:29600",
                  "trireme train images.yaml --set data.service=10.0.0.7:29600"},
                 "Both need the same secret: TRIREME_DATA_TOKEN, or a file with it in "
                 "TRIREME_DATA_TOKEN_FILE. Press Ctrl-C to end.");
  serve.action([served] { return serve_data(*served); });
  Command audit_command = command.subcommand(
      "audit",
      "Prove from a run's logs that each sample of each finished epoch was used exactly once");
  auto runs = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false);
  audit_command.required(
      "run", *runs,
      "The run's folder (run.dir) or its log; several if the run was started several times");
  audit_command.flag("--json", *json, "Print JSON");
  audit_command.examples({"trireme data audit runs/digits-20260131-101500"},
                         "The exit code is 1 if a sample was missed or used twice.");
  audit_command.action([runs, json] { return audit(*runs, *json); });
}

}  // namespace trireme::cli
