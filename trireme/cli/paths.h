// Where things are beside this program, in the source tree or installed. No torch.
#pragma once
#include <trireme/cli/config.h>
#include <filesystem>
#include <string>

namespace trireme::cli {

// The program `name` in this program's own folder. Throws Error(not_found).
std::filesystem::path sibling_program(const std::string& name);
// The digits that ship: $TRIREME_DATA/digits.csv.gz, the source tree's data/, the installed
// share/trireme/data/. Throws Error(not_found).
std::filesystem::path shipped_digits();

// run.dir, or a new one named after data and time ("runs/digits-20260131-101500"); and the files in
// it.
std::string make_run_dir(const Config& config);
std::string checkpoint_dir(const Config& config);  // checkpoint.dir, or run.dir/checkpoint.
// In it: which injected faults have struck (train/injector.h).
std::filesystem::path marks_dir(const std::filesystem::path& checkpoint_dir);

}  // namespace trireme::cli
