// Checks the expectations of a run with faults after its end. No torch.
#pragma once
#include <trireme/run/config.h>
#include <functional>
#include <string>
#include <vector>

namespace trireme::cli {

struct ExpectRun {
  const Config& config;              // The configuration of the run; its run.dir holds the report.
  std::vector<std::string> reports;  // More files with the same report.
  // Trains with these values set over those of the run, and returns the exit code. It makes the
  // reference without faults.
  std::function<int(const std::vector<std::string>& set)> train;
};

// Checks config.inject.expect against the report. If it needs the reference without faults, it
// trains it in run.dir/reference. Prints each finding on standard error, and writes all of them
// into the reports as "expect". Returns 0 if all expectations hold, else 1, or the exit code of
// the reference if that failed.
int judge_expectations(const ExpectRun& run);

}  // namespace trireme::cli
