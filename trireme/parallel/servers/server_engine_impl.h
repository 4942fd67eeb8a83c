// The engine of strategy parameter_server. Included by its sources alone.
#pragma once
#include <torch/optim/optimizer.h>

#include <trireme/base/deadline.h>
#include <trireme/parallel/gradient_watch.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/optimizer_view.h>
#include <trireme/parallel/own_pace.h>
#include <trireme/parallel/passes.h>
#include <trireme/parallel/servers/server_access.h>
#include <trireme/parallel/servers/server_client.h>
#include <trireme/parallel/servers/server_engine.h>
#include <trireme/parallel/servers/server_restorer.h>
#include <trireme/parallel/servers/tables/engine_tables.h>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// The optimizer of this rank never steps: it has the learning rates, and a copy of the servers'
// state where that is read or written.
class ServerEngine : public Engine, private OwnPace {
 public:
  explicit ServerEngine(const EngineSetting& setting);  // COLLECTIVE.

  StepOutcome step(const StepRequest& request) override;
  OwnPace* own_pace() override {
    return plan::is_in_step(access_.options.consistency) ? nullptr : this;
  }
  at::Tensor evaluate(const Batch& batch) override { return output_of(setting_.model, batch); }
  DataShare data_share() const override { return {group().rank(), group().size()}; }

  // The optimizer's state stays on the servers.
  void prepare_to_evaluate() override {
    client_->refresh(deadline());
    broadcast_tensors(group(), model_.buffers);
  }
  void prepare_to_read() override {
    load_state(*optimizer_, model_.parameters, client_->read_state(deadline()));
    broadcast_tensors(group(), model_.buffers);
  }
  EngineState state() override {
    EngineState state;
    append(state.tensors, model_.parameters, StateKind::parameter);
    append(state.tensors, model_.buffers, StateKind::buffer);
    optimizer_view_.show(state);
    state.counters["servers"] = {{"versions", client_->versions()}};
    state.elsewhere = tables_.elsewhere();
    return state;
  }
  void begin_load(const IncomingState& incoming) override;
  void end_load() override;

  std::vector<double> rates() const override { return optimizer_view_.rates(); }
  void set_rates(std::span<const double> rates) override { optimizer_view_.set_rates(rates); }
  const plan::EnginePlan& plan() const override { return plan_; }
  Json facts_for_report() override;
  MemoryUse memory_use() const override { return passes_.memory_use(); }
  // Pieces that no server has any more are lost.
  bool is_torn() const override { return torn_ || client_->has_lost_pieces(); }

 private:
  // An error meanwhile may leave some of the parameters newer than the others.
  class TornWhile {
   public:
    explicit TornWhile(ServerEngine& engine)
        : engine_(engine), exceptions_(std::uncaught_exceptions()) {}
    ~TornWhile() {
      if (std::uncaught_exceptions() > exceptions_) engine_.torn_ = true;
    }

   private:
    ServerEngine& engine_;
    const int exceptions_;
  };

  void warn_of_momentum() const;
  void watch_gradients();
  void connect();
  void begin_with_own_values();
  void begin();
  RoundEnd round(const RoundRequest& request) override;
  std::optional<double> compute(const Batch& batch, int passes);
  void clip_alone();
  void restore_after_step();
  bool require_servers_with(const std::vector<int64_t>& versions);
  void require_rows_of(int64_t version);
  void write_own_state() {
    client_->write_state(trireme::state_of(*optimizer_, model_.parameters), deadline());
  }
  double backward_sum(const Batch& batch, int passes);
  // In the last pass of a backward, gradients may leave early.
  class LeaveEarly {
   public:
    LeaveEarly(ServerEngine& engine, bool is_last) : engine_(is_last ? &engine : nullptr) {
      if (!engine_) return;
      // A server that is stuck holds a worker up for less than a call may take.
      engine_->client_->begin_early(engine_->own_pace() == nullptr,
                                    engine_->access_.options.patience / 4);
      engine_->watch_->arm(true);
    }
    ~LeaveEarly() {
      if (!engine_) return;
      engine_->watch_->arm(false);
      engine_->client_->end_early();
    }
    LeaveEarly(const LeaveEarly&) = delete;
    LeaveEarly& operator=(const LeaveEarly&) = delete;

   private:
    ServerEngine* const engine_;
  };
  bool gradients_are_finite() const;
  bool decide_together(StepOutcome& outcome, servers::ServerUpdate& update);
  void clear_gradients() {
    for (const NamedTensor& each : model_.parameters) each.tensor.mutable_grad().reset();
    tables_.forget_step();
  }

  Group& group() const { return *setting_.group; }
  Deadline deadline() const { return Deadline::after(access_.options.patience); }

  const EngineSetting setting_;
  const ServerAccess access_;
  ModuleState model_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  OptimizerView optimizer_view_;
  Passes passes_;
  plan::EnginePlan plan_;
  std::unique_ptr<ServerClient> client_;
  ServerRestorer restorer_;
  servers::EngineTables tables_;
  std::unique_ptr<GradientWatch> watch_;  // Null: gradients leave after backward.
  bool writes_ = false;                   // The state that is being loaded is for the servers.
  std::string saved_in_;                  // The checkpoint that it comes from; on rank 0.
  std::exception_ptr failed_restore_;
  bool torn_ = false;
};

}  // namespace trireme
