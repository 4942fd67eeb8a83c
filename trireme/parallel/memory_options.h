// The options of a run's memory, and the rules for single blocks. No torch.
#pragma once
#include <trireme/config/rows.h>
#include <trireme/plan/memory_plan.h>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct MemoryOptions {
  // none, recompute, swap, or auto, which takes whatever costs the least time.
  std::string policy = "none";
  int64_t budget = 0;  // Bytes of activations for each replica; 0: none.
  std::string rules;   // "pattern=decision,...", for the names of blocks.
  // The state that is in files between its uses: none, optimizer (its state), or parameters (these
  // too).
  std::string offload = "none";
  std::string swap_dir;  // The folder of all these files.

  // The folder of the optimizer's state, and that of parameters; empty if they are in memory.
  std::string folder_of_state() const { return offload == "none" ? "" : swap_dir; }
  std::string folder_of_parameters() const { return offload == "parameters" ? swap_dir : ""; }

  bool is_plain() const { return policy == "none" && rules.empty(); }
};
config::Rows rows_of(const MemoryOptions*);

// Throws Error(invalid_argument) that names the wrong part.
std::vector<plan::MemoryRule> parse_memory_rules(const std::string& text);

// Throws Error(invalid_argument) if options do not fit together.
void check(const MemoryOptions& options);

}  // namespace trireme
