// Embedding tables that live elsewhere, as the layers of a model see them
// (trireme/parallel/nn/sharded_embedding.h).
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/deadline.h>
#include <trireme/parallel/servers/tables/row_init.h>
#include <trireme/plan/table_plan.h>
#include <string>
#include <vector>

namespace trireme {

// Rows of a table, each one once: int64 [n].
struct RowsOfTable {
  int table = 0;
  at::Tensor rows;
};

// Used by one thread.
class RowSource {
 public:
  virtual ~RowSource() = default;

  // The values of the rows: float32 [n, width] for each entry. They are leaves for autograd, and
  // whoever has made the source sends their gradients after backward. Throws
  // Error(invalid_argument) naming table, row and position for a row that is outside.
  virtual std::vector<at::Tensor> pull(const std::vector<RowsOfTable>& wanted,
                                       Deadline deadline) = 0;
  // The same for an evaluation: nothing is remembered, no row is made, and it never waits for
  // other workers.
  virtual std::vector<at::Tensor> peek(const std::vector<RowsOfTable>& wanted,
                                       Deadline deadline) = 0;
  virtual const std::vector<plan::TableSpec>& tables() const = 0;
  // A layer says how the rows of its table begin. Sources whose servers know it already may ignore
  // this.
  virtual void begin_rows_with(int /*table*/, const RowInit& /*init*/) {}
  virtual int worker() const = 0;
  virtual Milliseconds patience() const = 0;  // The time of a pull inside forward().

  // The number of the table. Throws Error(invalid_argument) naming those that exist.
  int find(const std::string& table) const;
};

}  // namespace trireme
