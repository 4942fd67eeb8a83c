// The parts of a DataParallel. Included by its sources alone.
#pragma once
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/equal_draws.h>
#include <trireme/parallel/fused/fused_optimizer.h>
#include <trireme/parallel/gradient_watch.h>
#include <trireme/parallel/offloaded_model.h>
#include <trireme/parallel/parameter_changes.h>
#include <trireme/parallel/reproducible_exchange.h>
#include <trireme/parallel/shared/host_means.h>
#include <trireme/parallel/shared/shared_exchange.h>
#include <trireme/parallel/trained_apart.h>
#include <trireme/parallel/updated_tensors.h>
#include <trireme/parallel/updates_past_engine.h>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace trireme {

struct DataParallel::Impl : UpdatedTensors {
  std::shared_ptr<Group> group;
  std::shared_ptr<torch::nn::Module> module;
  ParameterForms forms;
  at::Device device = at::kCPU;
  plan::EnginePlan plan;
  std::unique_ptr<Exchange> exchange;
  // The exchange as what it is, if it is one of these.
  ReproducibleExchange* shards = nullptr;
  SharedExchange* shared = nullptr;
  LocalSgdExchange* apart = nullptr;
  // Null if optimizer->step() updates, or if the exchange has the fused optimizer.
  std::unique_ptr<fused::FusedOptimizer> own_update;
  std::unique_ptr<OffloadedModel> offloaded;  // Null unless own_update works on files.
  std::optional<GradScaler> scaler;
  std::unordered_map<const void*, uint64_t> numbers;  // The parameters, counted from 1.
  Contribution pending;
  bool told_unused = false;
  // The loop of the user's own and its steps; null in an engine of the Trainer, which has guards.
  std::shared_ptr<World::OwnLoop> own_loop;
  const std::shared_ptr<const void> teller = std::make_shared<int>();  // Known to end_step().
  int64_t own_steps = 0;
  int64_t alike_in = 0;  // The last step in which the replicas' parameters were found alike.
  std::shared_ptr<TrainedApart> apart_from_engines;  // Null unless the loop is looked at for it.
  // Null without a loop of the user's own: the loop's own backward() calls, and what it writes
  // between them.
  std::unique_ptr<UpdatesPastEngine> past_engine;
  std::unique_ptr<GradientWatch> own_backward;
  int reached_by = -1;  // The last of them that reached a parameter.
  std::unique_ptr<EqualDraws> draws;
  int number = 0;  // Among those of the loop.
  std::shared_ptr<const std::function<void()>> before_leave;
  const bool skip_nonfinite;
  int64_t updated_elements = 0;    // By update(), in the current step.
  std::optional<Traffic> traffic;  // The group's, when the gradients of the step began to travel.

  Impl(std::shared_ptr<Group> the_group, std::shared_ptr<torch::nn::Module> the_module,
       UpdatedTensors updated, const DataParallelOptions& options);
  Impl(const Impl&) = delete;
  // Tells of updates past the engine, unless an exception passes or the loop has left. leave()
  // compares the parameters of an engine that is gone too.
  ~Impl();

  // data_parallel_start.cc: the way from the options to the exchange.
  // COLLECTIVE. Plans the engine, and compares the plan and everything else that must be alike on
  // all ranks. If only some ranks refuse their options, the others must not wait for them: an
  // error is one of the facts.
  Planner agree_on_plan(const DataParallelOptions& options);
  plan::DataParallelFacts plan_facts(const DataParallelOptions& options) const;
  static Planner planner_of(plan::DataParallelFacts facts);
  // COLLECTIVE. Makes what the plan says.
  void make_exchange(const DataParallelOptions& options, const Planner& planner);
  // COLLECTIVE. Where replicas share no parameters.
  void offload_own(const OffloadOptions& offload);
  Json facts_to_agree(const DataParallelOptions& options) const;
  // A hash of the optimizer's groups, the same on every rank whose groups have the same
  // parameters. The order inside a group does not count.
  uint64_t hash_of_groups() const;

  // data_parallel.cc: the steps.
  ReproducibleExchange& with_shards() const;
  // A change that any rank found ends all ranks.
  void refuse(ParameterChange mine) const;
  void refuse_changes() const;
  void sync_state();
  // The update on each replica, for an exchange that does not update itself.
  void update(std::span<const int> reduced);
  void tell_unused(const StepOutcome& outcome);
  bool compares_parameters() const;
  bool is_digest_due() const;
  uint64_t digest_for_own_loop() const;
  void look_for_own_loop(World& world, int the_number, bool may_train_apart);
  void forget_loop();
  void look_at_own_step(const StepOutcome& outcome);
  // Runs in each backward, when a gradient has been accumulated.
  void look_at_own_backward();
  void tell_at_the_end() const;
  // Change::past_replica, if the loop comes to its end without a step() of the engine.
  ParameterChange find_past_engine() const;
  // All ranks have got the same parameters, or have made a step.
  void forget_writes() const;
  // In a loop of the user's own its text names the step.
  Error refusal(int rank, ParameterChange found) const;
  // The phases and steps of the loop, which the launcher knows and where faults strike. They do
  // nothing in an engine of the Trainer.
  void enter(Phase phase) const;
  void end_own_step() const;
  // COLLECTIVE, as step() is, to which the other ranks come. All ranks throw.
  [[noreturn]] void refuse_on_all(ParameterChange found);
  // COLLECTIVE. exchange->exchange(), with an error that names what differs between the ranks.
  StepOutcome exchange_facts(const Contribution& mine, const Update& update);
  StepOutcome finish(const Update& update);
  void broadcast(const std::vector<NamedTensor>& tensors) { broadcast_tensors(*group, tensors); }
};

}  // namespace trireme
