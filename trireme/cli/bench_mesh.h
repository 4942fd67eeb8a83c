// The arguments of `trireme bench step` that divide the model and its state, and those of the
// memory of its activations.
#pragma once
#include <trireme/cli/command_line.h>
#include <trireme/parallel/memory_options.h>
#include <trireme/plan/division.h>
#include <string>
#include <vector>

namespace trireme::cli {

struct BenchMesh {
  std::string axes;  // "pipeline=2,tensor=1"; empty: data parallel.
  std::string schedule = "1f1b", cut = "auto", optimizer = "sgd";
  int microbatches = 0, chunks = 0, shard_level = 0;
  std::string memory_policy = "none", memory_budget = "0", swap_dir;

  // Adds the options, with texts for people if `described`.
  void add_to(Command command, bool described);
  std::vector<std::string> words() const;
  bool is_wanted() const { return !axes.empty() || shard_level > 0; }
  bool has_memory_policy() const { return memory_policy != "none"; }
  // Throws Error(invalid_argument) naming the option.
  plan::DivisionOptions division() const;
  MemoryOptions memory() const;
};

}  // namespace trireme::cli
