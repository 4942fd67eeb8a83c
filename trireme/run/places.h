// The folders and files of a run. No torch.
#pragma once
#include <trireme/run/config.h>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

// The words that start the programme with torch of this name, "trireme-worker" or "trireme-bench".
// It is in the folder of this programme, and will find LibTorch if this process starts it
// (libtorch_place.h). A `library` (model.library) that is a programme stands in for it, and will
// find the data that ship with this one. Throws Error(not_found) if the programme is missing,
// Error(invalid_argument) if it may not be executed, and as use_libtorch() does.
std::vector<std::string> torch_command(const std::string& name, const std::string& library);

// run.dir, or a new folder named after data and time ("runs/digits-20260131-101500").
std::string make_run_dir(const Config& config);
std::string checkpoint_dir(const Config& config);  // checkpoint.dir, or run.dir/checkpoint.
// Whether the run may need no model.weights: there are checkpoints from which it continues, or
// this process is a worker of an elastic job, which may take the state of others. If there is no
// state after all, Job::has_no_start says so.
bool may_lack_weights(const Config& config);
// The folder in it that records the injected faults that have struck (faults/injector.h).
std::filesystem::path marks_dir(const std::filesystem::path& checkpoint_dir);

// The file in run.dir that gets a line for each checkpoint that the evaluator has evaluated.
std::filesystem::path curve_of_evaluator(const Config& config);

}  // namespace trireme
