// After a run with faults: is what it had to keep kept? No torch.
#pragma once
#include <trireme/cli/config.h>
#include <functional>
#include <string>
#include <vector>

namespace trireme::cli {

struct ExpectRun {
  const Config& config;              // Of the run; its run.dir holds the report.
  std::vector<std::string> reports;  // More files that hold the same report.
  // Trains with these values set over those of the run, and returns the exit code: for the
  // reference without faults.
  std::function<int(const std::vector<std::string>& set)> train;
};

// Judges config.inject.expect from the report, trains the undisturbed reference in
// run.dir/reference where it needs one, tells each finding on standard error, and writes them into
// the reports as "expect". Returns 0 if all hold, else 1, or the reference's own exit code if that
// failed.
int judge_expectations(const ExpectRun& run);

}  // namespace trireme::cli
