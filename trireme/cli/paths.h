// The places of files beside this programme, in the source tree or installed. No torch.
#pragma once
#include <trireme/cli/config.h>
#include <filesystem>
#include <string>

namespace trireme::cli {

// The path of programme `name` in this programme's own folder. Throws Error(not_found).
std::filesystem::path sibling_program(const std::string& name);
// The digits data set that ships with Trireme: $TRIREME_DATA/digits.csv.gz, the source tree's
// data/, or the installed share/trireme/data/. Throws Error(not_found).
std::filesystem::path shipped_digits();

// run.dir, or a new folder named after data and time ("runs/digits-20260131-101500").
std::string make_run_dir(const Config& config);
std::string checkpoint_dir(const Config& config);  // checkpoint.dir, or run.dir/checkpoint.
// The folder in it that records the injected faults that have struck (train/injector.h).
std::filesystem::path marks_dir(const std::filesystem::path& checkpoint_dir);

}  // namespace trireme::cli
