// An embedding table, or a server's rows of it: the rows that were used so far are in memory, each
// with its values and its optimizer's state.
//
// A row is made when it is first pulled. Until then, and again after it was evicted, it has its
// initial value (row_init.h), so a row that is not in memory can be pulled like any other.
#pragma once
#include <trireme/base/json.h>
#include <trireme/parallel/servers/tables/row_index.h>
#include <trireme/parallel/servers/tables/row_init.h>
#include <trireme/parallel/servers/tables/row_optimizer.h>
#include <trireme/parallel/servers/tables/row_slabs.h>
#include <trireme/plan/table_plan.h>
#include <span>
#include <string>
#include <vector>

namespace trireme {

struct TableOptions {
  RowOptimizer optimizer;
  RowInit init;
  // Admission: a row gets memory when it is pulled for the n-th time, 1 to 255. Before that it has
  // its initial value, and its pushes are dropped. Rows are counted in a sketch of fixed size, in
  // which a row may take another one's counts: it is then admitted early, never late.
  int64_t admit_after = 1;
  // Eviction: a row that was in no pull and no push of so many updates loses its memory, and so
  // what it has learnt. 0: never. Rows are looked through once in an eighth of this time.
  int64_t evict_unused = 0;
  // The most bytes of memory of this server: rows, their state, and the index. 0: no limit.
  int64_t budget_bytes = 0;
  // Eviction: a table at its budget gives up the rows that were used least recently, an eighth at
  // a time. Otherwise it refuses to grow. Needs a budget.
  bool evicts_least_recent = false;
};
// Whether every row that is used gets memory and keeps it.
inline bool grows_without_limits(const TableOptions& options) {
  return options.admit_after == 1 && options.evict_unused == 0 && options.budget_bytes == 0;
}
// Throws Error(invalid_argument) naming table and option.
void check(const TableOptions& options, const plan::TableSpec& table);

struct RowTableFacts {
  int64_t rows = 0, bytes = 0;     // Now.
  int64_t pulled = 0, pushed = 0;  // Rows in all pulls and pushes.
  int64_t made = 0, evicted = 0;
  int64_t dropped = 0;  // Rows in pushes that changed nothing, because they had no memory.
  Json to_json() const;
};

namespace servers {

// Counts how often rows were seen: the smaller of two counters, each of which other rows may have
// too (Cormode, Muthukrishnan 2005, "An improved data stream summary: the count-min sketch").
class SeenRows {
 public:
  explicit SeenRows(int64_t admit_after);
  // Counts the row, and returns whether it has been seen often enough.
  bool admits(int64_t row);
  size_t bytes() const { return counters_.size(); }

 private:
  int64_t admit_after_;
  std::vector<uint8_t> counters_;  // Empty if every row is admitted.
};

// Used under one lock.
class RowTable {
 public:
  // Throws as check() does.
  RowTable(plan::TableSpec spec, TableOptions options);

  const plan::TableSpec& spec() const { return spec_; }
  const TableOptions& options() const { return options_; }
  RowTableFacts facts() const;
  void set_rate(double lr) { options_.optimizer.lr = lr; }

  // Copies the rows' values to `to`, [rows, width]. Rows that are new get memory, unless it
  // `peeks`: then nothing changes. `now`: the updates so far. Throws Error(invalid_argument)
  // naming table, rows and bytes if the budget does not allow it; no row is made then.
  void pull(std::span<const int64_t> rows, uint32_t now, bool peeks, float* to);
  // Updates the rows that have memory by their gradients, [rows, width], in this order. In a table
  // that grows without limits the others get memory: a copy of the table gets pushes alone.
  void push(std::span<const int64_t> rows, const float* gradients, uint32_t now);
  // Evicts rows that were not used for so long. Call it after each update.
  void evict_unused(uint32_t now);

  // The rows that have memory, in rising order.
  std::vector<int64_t> rows() const;
  // Values and state of a row that has memory: floats_of_row() of them.
  const float* find(int64_t row) const;
  // Gives a row memory, and returns the place of its values and state. Throws as pull() does.
  float* make(int64_t row, uint32_t now);

 private:
  size_t most_rows() const;
  void require_room(size_t rows, uint32_t now);
  void evict(size_t rows, uint32_t now);
  void remove(const RowIndex::Entry& entry);
  float* add(int64_t row, uint32_t now);

  plan::TableSpec spec_;
  TableOptions options_;
  uint64_t key_;
  RowIndex index_;
  RowSlabs slabs_;
  SeenRows seen_;
  RowTableFacts facts_;
  uint32_t looked_ = 0;  // The update at which unused rows were looked for last.
  size_t most_rows_;
  // Kept between calls, so that a call takes no memory.
  std::vector<uint32_t> slots_;
  std::vector<float*> places_;
  std::vector<const float*> gradients_;
  std::vector<float> initial_;
};

}  // namespace servers
}  // namespace trireme
