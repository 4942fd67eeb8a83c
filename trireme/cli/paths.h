// Where things are beside this program, in the source tree or installed. No torch.
#pragma once
#include <trireme/cli/config.h>
#include <trireme/data/image_table.h>
#include <trireme/plan/data_plan.h>
#include <filesystem>
#include <string>

namespace trireme::cli {

// The program `name` in this program's own folder. Throws Error(not_found).
std::filesystem::path sibling_program(const std::string& name);
// The digits that ship: $TRIREME_DATA/digits.csv.gz, the source tree's data/, the installed share/trireme/data/. Throws Error(not_found).
std::filesystem::path shipped_digits();

struct Tables {
  data::ImageTable train, test;  // test.count may be 0.
  plan::Split split;             // Which samples of the file each holds; empty where the data has a test part of its own.
};
// Reads the data that a configuration names, checks labels, and holds out data.test_fraction (by data.split_seed) where there is no test
// part.
Tables read_tables(const Config& config);

// run.dir, or a new one named after data and time ("runs/digits-20260131-101500"); and the files in it.
std::string make_run_dir(const Config& config);
std::string checkpoint_dir(const Config& config);  // checkpoint.dir, or run.dir/checkpoint.

}  // namespace trireme::cli
