#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/tables/model_tables.h>
#include <utility>

namespace trireme {

ModelTables::ModelTables(std::vector<plan::TableSpec> specs, const TableOptions& options)
    : specs_(std::move(specs)), options_(specs_.size(), options) {
  plan::plan_tables({specs_});  // Throws for a table twice.
  for (const plan::TableSpec& spec : specs_) check(options, spec);
}

std::vector<at::Tensor> ModelTables::read(const std::vector<RowsOfTable>& wanted, bool peeks,
                                          Deadline deadline) const {
  if (!read_)
    throw Error(ErrorCode::invalid_argument, "parallel",
                "rows of an embedding table are wanted, and no parameter servers are connected",
                "a Trainer with strategy parameter_server and these tables as Job::tables");
  return read_(wanted, peeks, deadline);
}

std::vector<at::Tensor> ModelTables::pull(const std::vector<RowsOfTable>& wanted,
                                          Deadline deadline) {
  std::vector<at::Tensor> values = read(wanted, /*peeks=*/false, deadline);
  pulled_.add(wanted, values);
  return values;
}

std::vector<at::Tensor> ModelTables::peek(const std::vector<RowsOfTable>& wanted,
                                          Deadline deadline) {
  return read(wanted, /*peeks=*/true, deadline);
}

void ModelTables::begin_rows_with(int table, const RowInit& init) {
  check(init);
  options_.at(static_cast<size_t>(table)).init = init;
}

void ModelTables::connect(Read read, int worker, Milliseconds patience) {
  read_ = std::move(read);
  worker_ = worker;
  patience_ = patience;
  pulled_.forget();
}

std::string ModelTables::describe() const {
  std::string text;
  for (size_t i = 0; i < specs_.size(); ++i)
    text += fmt::format("{}{} with {}", i == 0 ? "" : "; ", specs_[i].describe(),
                        to_string(options_[i].optimizer.rule));
  return text;
}

}  // namespace trireme
