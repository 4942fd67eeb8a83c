#include <trireme/parallel/servers/tables/pulled_rows.h>

#include <ATen/ops/empty.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/tables/row_gradients.h>
#include <trireme/parallel/servers/tables/table_checks.h>
#include <algorithm>
#include <map>
#include <utility>

namespace trireme {
namespace servers {
namespace {

[[noreturn]] void refuse_rows(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, remedy);
}

std::span<const int64_t> row_numbers(const at::Tensor& rows) {
  return {rows.const_data_ptr<int64_t>(), static_cast<size_t>(rows.numel())};
}

}  // namespace

void PulledRows::add(const std::vector<RowsOfTable>& wanted,
                     const std::vector<at::Tensor>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i].set_requires_grad(true);
    pulled_.push_back({wanted[i].table, wanted[i].rows, values[i]});
  }
}

std::vector<RowValues> PulledRows::gradients(const std::vector<plan::TableSpec>& tables,
                                             int worker, bool checks) const {
  std::map<int, std::vector<const RowValues*>> by_table;
  for (const RowValues& each : pulled_)
    if (each.values.grad().defined()) by_table[each.table].push_back(&each);
  std::vector<RowValues> all;
  for (const auto& [table, entries] : by_table) {
    const plan::TableSpec& spec = tables[static_cast<size_t>(table)];
    RowSums sums(spec.width);
    for (const RowValues* entry : entries) {
      const at::Tensor gradient = entry->values.grad().contiguous();
      const RowGradients rows{static_cast<size_t>(table), spec.width, row_numbers(entry->rows),
                              gradient.const_data_ptr<float>()};
      if (checks) check_finite(spec, rows, worker);
      if (entries.size() == 1)
        all.push_back({table, entry->rows, gradient});
      else
        sums.add(rows);
    }
    if (entries.size() == 1) continue;
    const auto rows = std::ssize(sums.rows());
    RowValues sum{table, at::empty({rows}, at::kLong), at::empty({rows, spec.width}, at::kFloat)};
    std::ranges::copy(sums.rows(), sum.rows.mutable_data_ptr<int64_t>());
    std::copy_n(sums.gradients(), sum.values.numel(), sum.values.mutable_data_ptr<float>());
    all.push_back(std::move(sum));
  }
  return all;
}

void check_wanted(const std::vector<plan::TableSpec>& tables, const RowsOfTable& wanted,
                  int worker) {
  if (wanted.table < 0 || wanted.table >= std::ssize(tables))
    refuse_rows(fmt::format("table {} of {}", wanted.table, tables.size()), "a table of the plan");
  const plan::TableSpec& spec = tables[static_cast<size_t>(wanted.table)];
  if (!wanted.rows.defined() || wanted.rows.scalar_type() != at::kLong || wanted.rows.dim() != 1 ||
      !wanted.rows.is_contiguous())
    refuse_rows(fmt::format("rows of table '{}' are no contiguous int64 [n]", spec.name),
                "rows.to(at::kLong).flatten()");
  check_rows(spec, row_numbers(wanted.rows), worker);
}

DealtGradients::DealtGradients(const plan::TablePlan& plan,
                               const std::vector<RowValues>& gradients)
    : dealt_(static_cast<size_t>(plan.facts.servers)) {
  for (const RowValues& each : gradients) {
    std::vector<DealtRows> dealt = DealtRows::deal(plan, each.table, each.rows);
    for (size_t server = 0; server < dealt.size(); ++server) {
      if (dealt[server].count() == 0) continue;
      at::Tensor part = dealt[server].part_of(each.values);
      dealt_[server].push_back({each.table, std::move(dealt[server]), std::move(part)});
    }
  }
}

std::vector<int32_t> DealtGradients::add_to(net::Message& message, int server) const {
  std::vector<int32_t> tables;
  if (dealt_.empty()) return tables;
  for (const OfServer& each : dealt_[static_cast<size_t>(server)]) {
    tables.push_back(each.table);
    message.tensors.push_back(each.rows.rows());
    message.tensors.push_back(
        {{"", "float32", each.gradients.sizes().vec(), each.gradients.nbytes()},
         each.gradients.const_data_ptr()});
  }
  return tables;
}

DealtPull::DealtPull(const plan::TablePlan& plan, const std::vector<RowsOfTable>& wanted)
    : parts_(static_cast<size_t>(plan.facts.servers)) {
  for (const RowsOfTable& each : wanted) {
    const int64_t width = plan.facts.tables[static_cast<size_t>(each.table)].width;
    tables_.push_back(each.table);
    values_.push_back(at::empty({each.rows.numel(), width}, at::kFloat));
    dealt_.push_back(DealtRows::deal(plan, each.table, each.rows));
    for (size_t server = 0; server < parts_.size(); ++server)
      parts_[server].push_back(dealt_.back()[server].place_in(values_.back()));
  }
}

std::vector<int32_t> DealtPull::add_to(net::Message& message, int server) const {
  std::vector<int32_t> tables;
  for (size_t i = 0; i < dealt_.size(); ++i) {
    tables.push_back(tables_[i]);
    message.tensors.push_back(dealt_[i][static_cast<size_t>(server)].rows());
  }
  return tables;
}

net::Places DealtPull::places(int server) const {
  net::Places places;
  for (const at::Tensor& part : parts_[static_cast<size_t>(server)])
    places.emplace_back(static_cast<std::byte*>(part.mutable_data_ptr()), part.nbytes());
  return places;
}

std::vector<at::Tensor> DealtPull::values() const {
  for (size_t server = 0; server < parts_.size(); ++server)
    for (size_t i = 0; i < dealt_.size(); ++i)
      dealt_[i][server].spread(parts_[server][i], values_[i]);
  return values_;
}

}  // namespace servers

int RowSource::find(const std::string& table) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < tables().size(); ++i) {
    if (tables()[i].name == table) return static_cast<int>(i);
    names.push_back(tables()[i].describe());
  }
  servers::refuse_rows(fmt::format("there is no table '{}' on the servers", table),
                       fmt::format("{}", fmt::join(names, ", ")));
}

}  // namespace trireme
