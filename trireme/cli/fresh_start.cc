#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/folder.h>
#include <trireme/checkpoint/move_aside.h>
#include <trireme/cli/fresh_start.h>
#include <trireme/run/places.h>
#include <trireme/train/evaluation_curve.h>

namespace trireme::cli {
namespace {

// Moves the checkpoints of a folder aside and never deletes them, so "--fresh" cannot cost anybody
// their work.
void move_checkpoints_aside(const std::filesystem::path& dir) {
  std::error_code ignored;  // A folder that cannot be examined is refused when it is opened.
  const auto is_there = [&](const std::filesystem::path& path) {
    return std::filesystem::exists(path, ignored);
  };
  if (!checkpoint::has_checkpoints(dir) && !is_there(marks_dir(dir)) && !is_there(best_dir(dir)))
    return;
  std::filesystem::path aside;
  try {
    aside = checkpoint::move_aside(
        checkpoint::disk(), dir,
        {marks_dir(dir).filename().string(), best_dir(dir).filename().string()});
  } catch (const Error&) {
    // A launcher of the same job may have moved them already.
    if (!checkpoint::has_checkpoints(dir)) return;
    throw;
  }
  log_info("--fresh: the checkpoints in {} were moved to {}", dir.string(), aside.string());
}

}  // namespace

void move_run_aside(const Config& config) {
  move_checkpoints_aside(checkpoint_dir(config));
  std::error_code ignored;  // The evaluator says what is wrong with the file.
  const std::filesystem::path curve = curve_of_evaluator(config);
  for (int number = 1; std::filesystem::exists(curve, ignored); ++number) {
    const std::string old = fmt::format("{}.old-{}", curve.string(), number);
    if (!std::filesystem::exists(old, ignored))
      return std::filesystem::rename(curve, old, ignored);
  }
}

}  // namespace trireme::cli
