#include <trireme/base/files.h>
#include <trireme/cli/run_readers.h>
#include <trireme/monitor/event_json.h>
#include <trireme/run/places.h>
#include <unistd.h>

namespace trireme::cli {

monitor::RunFiles files_of_run(const Config& config) {
  const std::filesystem::path dir = config.record.dir;
  require_writable_folder(dir);
  monitor::RunFiles files{dir / "report.json", {}, {}};
  if (config.record.json_lines) files.log = dir / "log.jsonl";
  if (config.record.tensorboard) files.events = dir / "events";
  return files;
}

EvaluatorFiles files_of_evaluator(const Config& config) {
  const monitor::RunFiles of_run = files_of_run(config);
  // TensorBoard shows a folder inside the run's as a curve of its own.
  return {curve_of_evaluator(config), of_run.events.empty() ? "" : of_run.events / "evaluator"};
}

LauncherReaders::LauncherReaders(std::filesystem::path log, bool draws_progress)
    : log_path_(std::move(log)) {
  if (draws_progress) progress_ = monitor::make_progress(stdout, isatty(STDOUT_FILENO) != 0);
}

void LauncherReaders::take(const monitor::Told& told) {
  if (progress_ && told.rank == 0) progress_->take(told.event);
  const bool is_own = std::holds_alternative<monitor::NoticeRecord>(told.event);
  const bool is_known =
      told.rank == 0 || !std::holds_alternative<monitor::FaultRecord>(told.event);
  if (log_path_.empty() || (is_known && !is_own)) return;
  if (!log_) log_.emplace(log_path_);
  log_->append(monitor::to_line(to_json(told)) + "\n");
}

}  // namespace trireme::cli
