// Checks of what a worker sends to a table server, with one wording for both ends.
#pragma once
#include <trireme/net/requests/message.h>
#include <trireme/parallel/servers/tables/row_gradients.h>
#include <trireme/parallel/servers/tables/table_wire.h>
#include <trireme/plan/table_plan.h>
#include <span>
#include <vector>

namespace trireme::servers {

// The sizes of a request's tensors of rows, before they are read: one for each table, or two if
// gradients follow. Throws Error(invalid_argument) naming the worker and the table.
void check_row_tensors(const std::vector<int32_t>& tables, bool with_gradients,
                       std::span<const net::TensorNote> notes,
                       const std::vector<plan::TableSpec>& specs, int worker);
// The same for all of a request.
void check_tensors(const TableRequest& request, const std::vector<net::TensorNote>& notes,
                   const plan::TablePlan& plan, int workers);
// Throws Error(invalid_argument) naming table, row, position and worker for a row outside.
void check_rows(const plan::TableSpec& table, std::span<const int64_t> rows, int worker);
// Throws Error(corrupt) naming table, row and worker for NaN or infinity.
void check_finite(const plan::TableSpec& table, const RowGradients& gradients, int worker);

}  // namespace trireme::servers
