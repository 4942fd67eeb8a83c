// The options of `trireme plan` that plan a pipeline without a configuration.
#pragma once
#include <trireme/cli/command_line.h>
#include <filesystem>
#include <optional>
#include <string>

namespace trireme::cli {

struct PipelineArguments {
  std::string schedule, costs;
  std::optional<int> stages, microbatches, chunks, buffers;
  std::filesystem::path schedule_file, svg;

  void add_to(Command command);
  // Whether any of them was given.
  bool are_given() const;
  // Plans, checks and prints the pipeline, and draws it. Throws Error(invalid_argument) naming the
  // option, and that of the plan.
  int show(bool json) const;
};

}  // namespace trireme::cli
