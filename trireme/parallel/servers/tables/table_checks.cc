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

void check_tensors(const TableRequest& request, const std::vector<net::TensorNote>& notes,
                   const plan::TablePlan& plan, int workers) {
  const auto from = [&] { return fmt::format("worker {}", request.worker); };
  if (request.worker < 0 || request.worker >= workers)
    refuse_request(fmt::format("{} of a job with {} workers", from(), workers));
  const bool is_push = request.call == TableCall::push;
  const size_t each = is_push ? 2 : 1;
  if (notes.size() != each * request.tables.size())
    refuse_request(fmt::format("{} sends {} tensors for {} tables", from(), notes.size(),
                               request.tables.size()));
  if (is_push && request.samples < 0)
    refuse_request(fmt::format("{} pushes the mean over {} samples", from(), request.samples));
  for (size_t i = 0; i < request.tables.size(); ++i) {
    const int32_t table = request.tables[i];
    if (table < 0 || table >= std::ssize(plan.facts.tables))
      refuse_request(
          fmt::format("{} asks for table {} of {}", from(), table, plan.facts.tables.size()));
    const plan::TableSpec& spec = plan.facts.tables[static_cast<size_t>(table)];
    const uint64_t rows = notes[each * i].bytes / sizeof(int64_t),
                   wanted = rows * static_cast<uint64_t>(spec.width) * sizeof(float);
    if (notes[each * i].bytes % sizeof(int64_t) != 0)
      refuse_request(fmt::format("{} sends {} bytes of rows of table {}", from(),
                                 notes[each * i].bytes, spec.describe()));
    if (is_push && notes[each * i + 1].bytes != wanted)
      refuse_request(fmt::format("{} sends {} bytes of gradients for {} rows of table {}", from(),
                                 notes[each * i + 1].bytes, rows, spec.describe()));
  }
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
