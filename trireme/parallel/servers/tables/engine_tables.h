// The embedding tables of a model, as the engine of its parameter servers sees them. Without
// tables it does nothing.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/json.h>
#include <trireme/parallel/servers/server_client.h>
#include <trireme/parallel/servers/tables/model_tables.h>
#include <trireme/parallel/state_view.h>
#include <trireme/plan/table_plan.h>
#include <memory>
#include <string>
#include <vector>

namespace trireme::servers {

// Used by one thread.
class EngineTables {
 public:
  // Null: there are none.
  EngineTables(std::shared_ptr<ModelTables> tables, int servers);
  ~EngineTables();
  EngineTables(const EngineTables&) = delete;
  EngineTables& operator=(const EngineTables&) = delete;

  bool any() const { return tables_ != nullptr; }
  const plan::TablePlan& plan() const { return plan_; }
  // The model's layers get their rows from this client, which must outlive this object.
  void connect(ServerClient& client, int worker, Milliseconds patience);

  // Backward is over: the gradients of the rows that it pulled, each row once.
  void take_gradients();
  std::vector<at::Tensor> gradients() const;  // May be scaled in place.
  void give_gradients();                      // To the next pushes.
  void forget_step();

  // They begin to write their part of a checkpoint (EngineState::elsewhere).
  StateElsewhere elsewhere() const;
  // The rows of a checkpoint that has tables.
  void load(const std::string& checkpoint);
  // One entry for each table, over all servers. Empty without tables.
  Json facts(Deadline deadline) const;

 private:
  const std::shared_ptr<ModelTables> tables_;
  const plan::TablePlan plan_;
  ServerClient* client_ = nullptr;
  std::vector<RowValues> gradients_;
};

}  // namespace trireme::servers
