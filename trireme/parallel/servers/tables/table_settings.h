// The keys of embedding tables on parameter servers (docs/parameter_server.md). No torch.
#pragma once
#include <trireme/config/rows.h>
#include <trireme/parallel/optimizer_options.h>
#include <cstdint>
#include <string>

namespace trireme {

struct TableOptions;

struct TableSettings {
  bool on_servers = false;
  std::string optimizer = "auto";  // Or a rule of row_optimizer.h.
  double lr = 0;                   // 0: that of the other parameters.
  double l1 = 0, l2 = 0;           // ftrl
  bool unbounded = false;          // Each category has a row of its own.
  // See TableOptions.
  int64_t admit_after = 1, evict_unused = 0, budget_bytes = 0;
  bool evicts_least_recent = false;
};
config::Rows rows_of(const TableSettings*);

// Throws Error(invalid_argument) naming the keys, for an optimizer of the other parameters that
// rows do not have.
void check(const TableSettings& settings, const OptimizerOptions& optimizer);
// The options of all tables of the model, but for how their rows begin.
TableOptions table_options_of(const TableSettings& settings, const OptimizerOptions& optimizer);

}  // namespace trireme
