// The rows that embedding tables have in a checkpoint, in the memory of this process, for an
// evaluation without servers.
#pragma once
#include <trireme/parallel/servers/tables/model_tables.h>
#include <trireme/parallel/servers/tables/shard_tables.h>
#include <filesystem>
#include <memory>
#include <vector>

namespace trireme::servers {

// Used by one thread. The layers of the model get their rows from here until it goes.
class CheckpointRows {
 public:
  explicit CheckpointRows(std::shared_ptr<ModelTables> tables);
  ~CheckpointRows();
  CheckpointRows(const CheckpointRows&) = delete;
  CheckpointRows& operator=(const CheckpointRows&) = delete;

  // The rows of before go. Throws Error(corrupt | io | not_found) for files that are damaged,
  // Error(unsupported) for a checkpoint without rows, or with those of other tables.
  void load(const std::filesystem::path& checkpoint);

 private:
  std::vector<at::Tensor> read(const std::vector<RowsOfTable>& wanted);

  const std::shared_ptr<ModelTables> tables_;
  ShardTables rows_;
};

}  // namespace trireme::servers
