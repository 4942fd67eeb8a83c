// The rows of all embedding tables that live on one server, and the updates that pushes make of
// them.
#pragma once
#include <trireme/parallel/servers/tables/row_gradients.h>
#include <trireme/parallel/servers/tables/row_table.h>
#include <trireme/plan/table_plan.h>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trireme::servers {

// The gradients of rows that a worker has pushed, in the memory of its message.
using PushedRows = std::vector<RowGradients>;

// The part of a push in a mean.
struct ShareOfMean {
  const PushedRows* rows = nullptr;
  double share = 1;
};

// Used under one lock.
class ShardTables {
 public:
  ShardTables() = default;  // No tables.
  // `options`: in the order of the plan; one entry counts for all tables. Throws as RowTable.
  ShardTables(const std::vector<plan::TableSpec>& specs, const std::vector<TableOptions>& options);

  size_t size() const { return tables_.size(); }
  RowTable& operator[](size_t table) { return tables_[table]; }
  std::vector<RowTable>& all() { return tables_; }
  std::vector<RowTableFacts> facts() const;

  // An update by the sum of these pushes, each times its share. The gradients of a row are added
  // up in this order, so that the bits do not depend on the order in which pushes came. `now`: the
  // updates before. With `can_go_back` the rows are kept as they were before.
  void update(const std::vector<ShareOfMean>& pushes, uint32_t now, bool can_go_back = false);
  // The rows become what they were before the last update. Returns false if that is not known.
  bool go_back();
  // The square of the norm of that sum.
  double squares(const std::vector<ShareOfMean>& pushes) const;
  // The learning rates become this factor of those in the options.
  void scale_rates(double factor);
  // All rows lose their memory, and have their initial values again.
  void clear();

 private:
  struct Before {  // Some rows of a table before an update, with their state.
    std::vector<int64_t> rows;
    std::vector<float> floats;
  };
  void keep(const std::vector<ShareOfMean>& pushes);

  std::vector<RowTable> tables_;
  std::vector<TableOptions> options_;  // [table]
  std::vector<Before> before_;         // [table]; empty: it cannot go back.
  double rate_factor_ = 1;
};

}  // namespace trireme::servers
