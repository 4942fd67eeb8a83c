#include <trireme/parallel/fused/kernels.h>
#include <trireme/parallel/servers/tables/shard_tables.h>
#include <algorithm>

namespace trireme::servers {
namespace {

// The sums of the gradients of one table; empty if none of the pushes has any.
RowSums sums_of(const std::vector<ShareOfMean>& pushes, size_t table, int64_t width) {
  size_t rows = 0;
  const auto each_of_table = [&](const auto& use) {
    for (const ShareOfMean& push : pushes)
      for (const RowGradients& each : *push.rows)
        if (each.table == table) use(each, push.share);
  };
  each_of_table([&](const RowGradients& each, double) { rows += each.rows.size(); });
  RowSums sums(width, rows);
  each_of_table(
      [&](const RowGradients& each, double share) { sums.add(each, static_cast<float>(share)); });
  return sums;
}

}  // namespace

ShardTables::ShardTables(const std::vector<plan::TableSpec>& specs,
                         const std::vector<TableOptions>& options) {
  for (size_t i = 0; i < specs.size(); ++i) {
    options_.push_back(options[options.size() == 1 ? 0 : i]);
    tables_.emplace_back(specs[i], options_.back());
  }
}

std::vector<RowTableFacts> ShardTables::facts() const {
  std::vector<RowTableFacts> facts;
  for (const RowTable& table : tables_) facts.push_back(table.facts());
  return facts;
}

void ShardTables::update(const std::vector<ShareOfMean>& pushes, uint32_t now, bool can_go_back) {
  before_.clear();
  if (can_go_back) keep(pushes);
  if (pushes.size() == 1 && pushes[0].share == 1) {
    for (const RowGradients& each : *pushes[0].rows)
      tables_[each.table].push(each.rows, each.gradients, now);
  } else {
    for (size_t i = 0; i < tables_.size(); ++i) {
      const RowSums sums = sums_of(pushes, i, tables_[i].spec().width);
      tables_[i].push(sums.rows(), sums.gradients(), now);
    }
  }
  for (RowTable& table : tables_) table.evict_unused(now);
}

// Rows that the update makes have their initial values before it, as they are without memory.
void ShardTables::keep(const std::vector<ShareOfMean>& pushes) {
  before_.resize(tables_.size());
  for (const ShareOfMean& push : pushes)
    for (const RowGradients& each : *push.rows) {
      RowTable& table = tables_[each.table];
      const auto floats =
          static_cast<size_t>(floats_of_row(table.options().optimizer.rule, each.width));
      Before& before = before_[each.table];
      for (const int64_t row : each.rows) {
        const float* from = table.find(row);
        if (from == nullptr && grows_without_limits(table.options())) from = table.make(row, 0);
        if (from == nullptr) continue;
        before.rows.push_back(row);
        before.floats.insert(before.floats.end(), from, from + floats);
      }
    }
}

bool ShardTables::go_back() {
  if (before_.empty()) return tables_.empty();
  for (size_t i = 0; i < tables_.size(); ++i) {
    const size_t floats =
        before_[i].rows.empty() ? 0 : before_[i].floats.size() / before_[i].rows.size();
    for (size_t k = 0; k < before_[i].rows.size(); ++k)
      std::copy_n(before_[i].floats.data() + k * floats, floats,
                  tables_[i].make(before_[i].rows[k], 0));
  }
  before_.clear();
  return true;
}

double ShardTables::squares(const std::vector<ShareOfMean>& pushes) const {
  double squares = 0;
  for (size_t i = 0; i < tables_.size(); ++i) {
    const int64_t width = tables_[i].spec().width;
    const RowSums sums = sums_of(pushes, i, width);
    squares += fused::sum_of_squares(sums.gradients(), std::ssize(sums.rows()) * width);
  }
  return squares;
}

void ShardTables::scale_rates(double factor) {
  if (factor == rate_factor_) return;
  rate_factor_ = factor;
  for (size_t i = 0; i < tables_.size(); ++i)
    tables_[i].set_rate(options_[i].optimizer.lr * factor);
}

void ShardTables::clear() {
  before_.clear();
  const double factor = rate_factor_;
  for (size_t i = 0; i < tables_.size(); ++i) {
    const plan::TableSpec spec = tables_[i].spec();
    tables_[i] = RowTable(spec, options_[i]);
  }
  rate_factor_ = 1;
  scale_rates(factor);
}

}  // namespace trireme::servers
