#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/checkpoint/file_system.h>
#include <trireme/cli/expect_run.h>
#include <trireme/train/expectations.h>
#include <cstdio>

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> settings_of_reference(const Config& config, const fs::path& folder) {
  std::vector<std::string> settings = {
      "inject.faults=none",         "inject.expect=none",
      "run.dir=" + folder.string(), "checkpoint.dir=" + (folder / "checkpoint").string(),
      "monitor.json_lines=false",   "monitor.tensorboard=false",
      "monitor.progress=false"};
  // A run that rolls back needs checkpoints to go back to.
  if (config.trainer.guard.policy != "rollback") settings.emplace_back("checkpoint.every=never");
  return settings;
}

}  // namespace

int judge_expectations(const ExpectRun& run) {
  const fs::path folder = run.config.record.dir;
  Json report = Json::parse(read_file(folder / "report.json"));
  bool all_hold = true;
  report["expect"] = Json::array();
  for (const Expectation expectation : parse_expectations(run.config.expect)) {
    Finding finding;
    if (expectation == Expectation::exactly_once) {
      finding = exactly_once(report);
    } else {
      const fs::path reference = folder / "reference";
      // An earlier run in this folder may have left its reference.
      checkpoint::disk().remove_tree(reference);
      fmt::print(stderr, "training again without faults, for comparison\n");
      if (const int code = run.train(settings_of_reference(run.config, reference));
          code != kExitOk)
        return code;
      finding = same_loss(report, Json::parse(read_file(reference / "report.json")),
                          run.config.trainer.dtype == plan::DType::float64);
    }
    fmt::print(stderr, "{}\n", finding.describe());
    report["expect"].push_back(finding.to_json());
    all_hold = all_hold && finding.holds;
  }
  write_file_atomically(folder / "report.json", report.dump(2) + "\n");
  for (const std::string& other : run.reports) write_file_atomically(other, report.dump(2) + "\n");
  return all_hold ? kExitOk : kExitFailed;
}

}  // namespace trireme::cli
