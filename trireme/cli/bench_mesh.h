// The arguments of `trireme bench step` that divide the model and its state.
#pragma once
#include <trireme/cli/command_line.h>
#include <trireme/plan/division.h>
#include <string>
#include <vector>

namespace trireme::cli {

struct BenchMesh {
  std::string axes;  // "pipeline=2,tensor=1"; empty: data parallel.
  std::string schedule = "1f1b", cut = "auto", optimizer = "sgd";
  int microbatches = 0, chunks = 0, shard_level = 0;

  // Adds the options, with texts for people if `described`.
  void add_to(Command command, bool described);
  std::vector<std::string> words() const;
  bool is_wanted() const { return !axes.empty() || shard_level > 0; }
  // Throws Error(invalid_argument) naming the option.
  plan::DivisionOptions division() const;
};

}  // namespace trireme::cli
