// The part of a report that says how the data came: Report::input.
#pragma once
#include <trireme/base/json.h>
#include <trireme/comm/group.h>
#include <trireme/data/source.h>
#include <cstdint>
#include <vector>

namespace trireme {

// The facts of one rank.
struct InputOfRank {
  double waited = 0, step_seconds = 0;  // The steps of this process, and their time without data.
  // The process has them in common; counts_process says which rank tells them.
  std::vector<data::StageUse> stages;
  int64_t threads = 0;  // The loading threads of this rank.
  int64_t skipped = 0;  // The records that could not be read.
  bool counts_process = true;
};

// COLLECTIVE. The same on every rank. All ranks have the same stages, or none.
Json report_of_input(const InputOfRank& own, Group& group);

// "waited 3.1 % of step time; slowest stage decode, 2 of 2 threads busy: data.threads=3"; empty if
// less than a hundredth was waited. `input` is a result of report_of_input().
std::string line_of_input(const Json& input);

}  // namespace trireme
