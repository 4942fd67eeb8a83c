#include <trireme/parallel/servers/tables/table_checks.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/fused/kernels.h>
#include <algorithm>
#include <cmath>

namespace trireme::servers {
namespace {

[[noreturn]] void refuse_request(const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, remedy);
}

}  // namespace

void check_row_tensors(const std::vector<int32_t>& tables, bool with_gradients,
                       std::span<const net::TensorNote> notes,
                       const std::vector<plan::TableSpec>& specs, int worker) {
  const size_t each = with_gradients ? 2 : 1;
  if (notes.size() != each * tables.size())
    refuse_request(fmt::format("worker {} sends {} tensors for {} tables", worker, notes.size(),
                               tables.size()));
  for (size_t i = 0; i < tables.size(); ++i) {
    if (tables[i] < 0 || tables[i] >= std::ssize(specs))
      refuse_request(
          fmt::format("worker {} asks for table {} of {}", worker, tables[i], specs.size()));
    const plan::TableSpec& spec = specs[static_cast<size_t>(tables[i])];
    const uint64_t rows = notes[each * i].bytes / sizeof(int64_t),
                   wanted = rows * static_cast<uint64_t>(spec.width) * sizeof(float);
    if (notes[each * i].bytes % sizeof(int64_t) != 0)
      refuse_request(fmt::format("worker {} sends {} bytes of rows of table {}", worker,
                                 notes[each * i].bytes, spec.describe()));
    if (with_gradients && notes[each * i + 1].bytes != wanted)
      refuse_request(fmt::format("worker {} sends {} bytes of gradients for {} rows of table {}",
                                 worker, notes[each * i + 1].bytes, rows, spec.describe()));
  }
}

void check_tensors(const TableRequest& request, const std::vector<net::TensorNote>& notes,
                   const plan::TablePlan& plan, int workers) {
  if (request.worker < 0 || request.worker >= workers)
    refuse_request(fmt::format("worker {} of a job with {} workers", request.worker, workers));
  const bool is_push = request.call == TableCall::push;
  check_row_tensors(request.tables, is_push, notes, plan.facts.tables, request.worker);
  if (is_push && request.samples < 0)
    refuse_request(
        fmt::format("worker {} pushes the mean over {} samples", request.worker, request.samples));
}

void check_rows(const plan::TableSpec& table, std::span<const int64_t> rows, int worker) {
  if (!table.is_bounded()) return;
  const auto wrong = std::ranges::find_if(rows, [&](int64_t row) { return !table.has(row); });
  if (wrong != rows.end())
    refuse_request(fmt::format("row {} at position {} of worker {}'s rows is outside table '{}', "
                               "which has rows 0 to {}",
                               *wrong, wrong - rows.begin(), worker, table.name, table.rows - 1),
                   "a larger table, or rows hashed into it");
}

void check_finite(const plan::TableSpec& table, const RowGradients& gradients, int worker) {
  const int64_t width = gradients.width;
  if (std::isfinite(
          fused::sum_of_squares(gradients.gradients, std::ssize(gradients.rows) * width)))
    return;
  for (size_t i = 0; i < gradients.rows.size(); ++i)
    if (!std::isfinite(fused::sum_of_squares(gradients.of(i), width)))
      throw Error(ErrorCode::corrupt, "parallel",
                  fmt::format("worker {}'s gradient of row {} of table '{}' has values that are "
                              "NaN or infinite",
                              worker, gradients.rows[i], table.name),
                  "a smaller learning rate, or train.clip_norm");
}

}  // namespace trireme::servers
