// The embedding tables of a model that trains with parameter servers, for Job::tables
// (train/trainer.h): its layers get their rows from here, and its engine says where they are.
//
//   auto tables = std::make_shared<ModelTables>(specs, TableOptions{...});
//   job.tables = tables;
//   job.model = [tables] { return ...; };  // nn::ShardedEmbedding(tables, "ads", ...)
#pragma once
#include <trireme/parallel/servers/tables/pulled_rows.h>
#include <trireme/parallel/servers/tables/row_source.h>
#include <trireme/parallel/servers/tables/row_table.h>
#include <functional>
#include <string>
#include <vector>

namespace trireme {

// Used by one thread.
class ModelTables : public RowSource {
 public:
  // The same options for all tables; each layer says how the rows of its table begin. Throws
  // Error(invalid_argument) naming table and option.
  ModelTables(std::vector<plan::TableSpec> specs, const TableOptions& options);

  // Throw Error(invalid_argument) before connect() too.
  std::vector<at::Tensor> pull(const std::vector<RowsOfTable>& wanted, Deadline deadline) override;
  std::vector<at::Tensor> peek(const std::vector<RowsOfTable>& wanted, Deadline deadline) override;
  const std::vector<plan::TableSpec>& tables() const override { return specs_; }
  void begin_rows_with(int table, const RowInit& init) override;
  int worker() const override { return worker_; }
  Milliseconds patience() const override { return patience_; }

  // [table]
  const std::vector<TableOptions>& options() const { return options_; }
  // "embeddings.0 [1000, 16] with adagrad; ...": a checkpoint of them fits no others.
  std::string describe() const;

  // For engines: the source of rows, and the rows that were pulled since forget().
  using Read = std::function<std::vector<at::Tensor>(const std::vector<RowsOfTable>& wanted,
                                                     bool peeks, Deadline deadline)>;
  void connect(Read read, int worker, Milliseconds patience);
  void disconnect() { read_ = {}; }
  servers::PulledRows& pulled() { return pulled_; }

 private:
  std::vector<at::Tensor> read(const std::vector<RowsOfTable>& wanted, bool peeks,
                               Deadline deadline) const;

  const std::vector<plan::TableSpec> specs_;
  std::vector<TableOptions> options_;
  Read read_;
  int worker_ = 0;
  Milliseconds patience_{60000};
  servers::PulledRows pulled_;
};

}  // namespace trireme
