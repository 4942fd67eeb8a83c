#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/optimizer_view.h>
#include <trireme/parallel/own_pace.h>
#include <trireme/parallel/passes.h>
#include <trireme/parallel/servers/server_access.h>
#include <trireme/parallel/servers/server_client.h>
#include <trireme/parallel/servers/server_engine.h>
#include <trireme/parallel/servers/server_restorer.h>
#include <trireme/parallel/step_facts.h>
#include <trireme/plan/strategy.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace trireme {
namespace {

constexpr Milliseconds kOneTry{2000};  // To connect to all servers.

std::vector<NamedTensor> trained_of(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> all;
  for (const NamedTensor& each : parameters)
    if (each.tensor.requires_grad()) all.push_back(each);
  return all;
}

plan::EnginePlan plan_of(const EngineSetting& setting, const ModuleState& model) {
  plan::DataParallelFacts facts;
  facts.placement = setting.group->placement();
  facts.parameters = specs_of(model.parameters);
  facts.ps = setting.servers->options;
  return plan::plan_engine(setting.strategy, facts);
}

// The optimizer of this rank never steps: it has the learning rates, and a copy of the servers'
// state where that is read or written.
class ServerEngine : public Engine, private OwnPace {
 public:
  explicit ServerEngine(const EngineSetting& setting)
      : setting_(setting),
        access_(*setting.servers),
        model_(state_of(*setting.model.module)),
        optimizer_(setting.optimizer(model_.parameters)),
        optimizer_view_(*optimizer_, model_.parameters),
        passes_(setting_),
        plan_(plan_of(setting, model_)),
        restorer_(access_.find_again) {
    if (kind_of(*optimizer_) == "opaque")
      throw Error(ErrorCode::unsupported, "parallel",
                  "an optimizer of a kind of its own on parameter servers, which read and write "
                  "its state in parts",
                  "SGD, Adam, AdamW, RMSprop or Adagrad");
    agree(group(), {{"strategy", setting_.strategy},
                    {"model", facts_of(model_)},
                    {"optimizer", facts_of(*optimizer_)},
                    {"plan", plan_.digest()}});
    broadcast_tensors(group(), model_.parameters);
    broadcast_tensors(group(), model_.buffers);
    connect();
  }

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

  void connect();
  void begin_with_own_values();
  void begin();
  RoundEnd round(const RoundRequest& request) override;
  std::optional<double> compute(const Batch& batch, int passes);
  void clip_alone();
  void restore_after_step();
  bool require_servers_with(const std::vector<int64_t>& versions);
  void write_own_state() {
    client_->write_state(trireme::state_of(*optimizer_, model_.parameters), deadline());
  }
  double backward_sum(const Batch& batch, int passes);
  bool gradients_are_finite() const;
  bool decide_together(StepOutcome& outcome, servers::ServerUpdate& update);
  void clear_gradients() {
    for (const NamedTensor& each : model_.parameters) each.tensor.mutable_grad().reset();
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
  bool writes_ = false;  // The state that is being loaded is for the servers.
  std::exception_ptr failed_restore_;
  bool torn_ = false;
};

// A server may be replaced meanwhile, and then has another address.
void ServerEngine::connect() {
  const Deadline limit = deadline();
  while (!client_) {
    try {
      ServerClientOptions options{.placement = *plan_.servers,
                                  .worker = group().rank(),
                                  .generation = access_.generation,
                                  .workers = group().size(),
                                  .compression = setting_.options.compression,
                                  .is_lost = access_.is_lost,
                                  .why_lost = access_.why_lost,
                                  .look = access_.look};
      client_ =
          std::make_unique<ServerClient>(access_.find(limit), access_.token, std::move(options),
                                         trained_of(model_.parameters), Deadline::after(kOneTry));
    } catch (const Error& error) {
      const bool may_come =
          error.code() == ErrorCode::timeout || error.code() == ErrorCode::peer_lost;
      if (!may_come || limit.expired()) throw;
      access_.look();
    }
  }
  begin_with_own_values();
}

// The values of rank 0 are the first ones. Servers that had values before keep them.
void ServerEngine::begin_with_own_values() {
  const auto& versions = client_->versions_at_join();
  if (group().rank() == 0 && std::ranges::count(versions, -1) == std::ssize(versions))
    client_->initialise(deadline());
  use_those_of_first(*client_, group(), deadline());
}

// COLLECTIVE. Gets the parameters for the first step. If no state was loaded, training begins: the
// servers may still have the model of workers that are all gone.
void ServerEngine::begin() {
  const std::vector<int64_t> versions_here = client_->versions();
  if (std::ranges::min(versions_here) >= 0) return;
  // The state is that of the servers, but for pieces whose server was lost since they were pulled.
  if (std::ranges::max(versions_here) >= 0) return client_->pull_the_missing(deadline());
  found_by_first(group(), [&] {
    const auto& versions = client_->versions_at_join();
    const bool are_new = std::ranges::count(versions, versions[0]) == std::ssize(versions) &&
                         versions[0] <= 0 && !client_->has_a_blank_server();
    if (!are_new) write_own_state();
    return Json();
  });
  client_->refresh(deadline());
}

// Adds up gradients of the mean loss over this rank's own samples. Returns the sum of the losses.
double ServerEngine::backward_sum(const Batch& batch, int passes) {
  double sum = 0;
  passes_.compute(batch, passes, [&](const at::Tensor& loss, int64_t samples, bool) {
    if (!loss.defined()) return;
    const double weight =
        static_cast<double>(samples) / static_cast<double>(std::max<int64_t>(1, batch.size()));
    if (samples > 0) sum += loss.detach().item<double>() * static_cast<double>(samples);
    loss.backward(at::full_like(loss.detach(), weight));
  });
  return sum;
}

bool ServerEngine::gradients_are_finite() const {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& each : model_.parameters) {
    const at::Tensor& gradient = each.tensor.grad();
    if (gradient.defined() && !at::isfinite(gradient.sum()).item<bool>() &&
        !at::isfinite(gradient).all().item<bool>())
      return false;
  }
  return true;
}

// All gradients are on the servers before the ranks learn the facts of the step. So each of them
// knows then that the update can be made, and any of them brings it about.
StepOutcome ServerEngine::step(const StepRequest& request) {
  if (failed_restore_) std::rethrow_exception(std::exchange(failed_restore_, {}));
  const Traffic before = group().traffic();
  begin();
  Contribution mine;
  mine.loss_sum = backward_sum(request.batch, request.passes);
  mine.samples = request.batch.size();
  mine.total_samples = request.batch.global_size;
  const bool is_finite = mine.samples == 0 || gradients_are_finite();
  setting_.enter(Phase::exchange);
  if (is_finite) client_->hold(mine.samples, deadline());
  const Wishes wishes = setting_.wishes();
  mine.wants_stop = wishes.stop;
  mine.wants_regroup = wishes.regroup;

  const StepFacts facts(group().size(), {});
  // One more: whether a lost server is to be restored after the step.
  const at::Tensor values = at::zeros({facts.size() + 1}, at::kDouble);
  facts.write(mine, group().rank(), {}, is_finite, values.narrow(0, 0, facts.size()));
  if (group().rank() == 0 && restorer_.finds_one(*client_)) values[facts.size()] = 1;
  group().all_reduce(values);
  const bool restores = values[facts.size()].item<double>() > 0;
  StepOutcome outcome = facts.read(values.narrow(0, 0, facts.size())).outcome;
  servers::ServerUpdate update = client_->next_update(group().size());
  update.rates = rates();
  if (decide_together(outcome, update)) {
    const TornWhile torn(*this);
    client_->follow(update, deadline());
    outcome.updated = true;
    const auto& pieces = plan_.servers->pieces;
    for (const plan::ServerPiece& piece : pieces) outcome.updated_elements += piece.count;
  }
  clear_gradients();
  if (restores) restore_after_step();
  const Traffic sent = group().traffic() - before;
  outcome.operations = sent.operations;
  outcome.bytes_sent = sent.bytes_sent;
  return outcome;
}

// The step is done. An error is one of the next step, which would else be taken from a state that
// has this one.
void ServerEngine::restore_after_step() {
  try {
    restorer_.restore(*client_, group(), deadline());
  } catch (const std::exception&) {
    failed_restore_ = std::current_exception();
  }
}

// The same on all ranks.
bool ServerEngine::decide_together(StepOutcome& outcome, servers::ServerUpdate& update) {
  const DataParallelOptions& options = setting_.options;
  if (!outcome.nonfinite_ranks.empty() || outcome.nonfinite_gradients || outcome.samples == 0)
    return false;
  if (options.clip_norm > 0 || options.gradient_norm) {
    // Rank 0 asks before any rank makes the update, which takes the gradients.
    const Json squares =
        found_by_first(group(), [&] { return Json(client_->squares(update, deadline())); });
    outcome.gradient_norm = std::sqrt(squares.get<double>());
    update.scale = clip_factor(outcome.gradient_norm, options.clip_norm);
  }
  return !options.accept || options.accept(outcome.loss, outcome.gradient_norm);
}

void ServerEngine::clip_alone() {
  if (setting_.options.clip_norm <= 0) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  separate_gradients(model_.parameters);
  for (const NamedTensor& each : model_.parameters) gradients.push_back(each.tensor.grad());
  multiply(gradients, clip_factor(norm_of(gradients), setting_.options.clip_norm));
}

// Returns the mean loss; empty if it or a gradient is not finite.
std::optional<double> ServerEngine::compute(const Batch& batch, int passes) {
  const double loss = backward_sum(batch, passes) / static_cast<double>(batch.size());
  if (!std::isfinite(loss) || !gradients_are_finite()) return std::nullopt;
  clip_alone();
  return loss;
}

RoundEnd ServerEngine::round(const RoundRequest& request) {
  begin();
  restorer_.restore(*client_, group(), deadline());
  client_->open_round(request.id, request.batches, deadline());
  TurnWish wish;
  const auto ask = [&] {
    const Wishes wishes = setting_.wishes();
    wish.stop = wishes.stop;
    wish.regroup = wishes.regroup;
    wish.meet = group().rank() == 0 && restorer_.finds_one(*client_);
    return wish;
  };
  ServerTurn turn = client_->first_turn(ask(), deadline());
  for (;;) {
    for (const servers::CountedLease& each : turn.counted) {
      ++wish.seen;
      request.counted({each.lease, each.worker, each.loss, each.samples});
    }
    if (!turn.lease && turn.has_more) {
      turn = client_->first_turn(ask(), deadline());
      continue;
    }
    if (!turn.lease) return {turn.limit, turn.stop, turn.regroup};
    access_.look();
    const Batch batch = request.load(*turn.lease);
    const auto loss = compute(batch, request.passes);
    setting_.enter(Phase::exchange);
    if (loss) {
      turn = client_->next_turn({*turn.lease, *loss, request.rates()}, batch.size(), ask(),
                                deadline());
    } else {
      client_->skip(*turn.lease, batch.size(), deadline());
      turn = client_->first_turn(ask(), deadline());
    }
    clear_gradients();
  }
}

void ServerEngine::begin_load(const IncomingState& incoming) {
  writes_ = incoming.model_is_new;
  if (writes_) {
    broadcast_tensors(group(), model_.parameters);
    broadcast_tensors(group(), model_.buffers);
  } else if (const Json own = incoming.counters.value("servers", Json()); own.is_object()) {
    const auto versions = own.at("versions").get<std::vector<int64_t>>();
    writes_ = require_servers_with(versions);
    client_->have_versions(versions);
  }
  optimizer_view_.begin_load(incoming.counters, incoming.tensors);
}

// COLLECTIVE. If servers that were replaced were the only ones with some pieces, all go back to a
// checkpoint. Before the first update the worker has all that such a server had: returns true, and
// the servers get it.
bool ServerEngine::require_servers_with(const std::vector<int64_t>& versions) {
  const Json found = found_by_first(group(), [&] {
    const std::vector<int64_t>& at_join = client_->versions_at_join();
    std::vector<std::string> lost;
    for (size_t i = 0; i < versions.size(); ++i)
      if (at_join[i] < versions[i]) lost.push_back(fmt::format("server {}", i));
    const bool are_first = std::ranges::max(at_join) == 0 && client_->has_a_blank_server();
    return Json{{"lost", lost}, {"writes", are_first}};
  });
  const auto lost = found.at("lost").get<std::vector<std::string>>();
  if (lost.empty()) return found.at("writes");
  torn_ = true;
  throw Error(
      ErrorCode::peer_lost, "parallel",
      fmt::format("nobody has the pieces of {} any more: another process has the task, and "
                  "no copy was left",
                  fmt::join(lost, ", ")),
      "nothing: the job continues from the newest checkpoint");
}

void ServerEngine::end_load() {
  optimizer_view_.end_load();
  if (!writes_) return;
  if (group().rank() == 0) write_own_state();
  group().barrier();
  client_->have_versions(std::vector<int64_t>(client_->versions().size(), -1));
  client_->refresh(deadline());
}

// The clock has judged all pushes of workers at their own pace; of steps together all servers have
// as many.
Json ServerEngine::facts_for_report() {
  return found_by_first(group(), [&] {
    const std::vector<Json> all = client_->facts(deadline());
    const Json& first = all.at(0);
    int64_t failovers = 0;
    std::map<int, double> cpu_seconds;  // [server]
    for (const Json& each : all) {
      failovers += each.at("failovers").get<int64_t>();
      cpu_seconds[each.at("server")] = each.at("cpu_seconds");
    }
    double all_cpu_seconds = 0;
    for (const auto& [server, seconds] : cpu_seconds) all_cpu_seconds += seconds;
    return Json{{"parameter_server",
                 {{"servers", plan_.servers->facts.servers},
                  {"pushes", first.at("pushes")},
                  {"late_pushes", first.at("late_pushes")},
                  {"pulls", first.at("pulls")},
                  {"updates", first.at("updates")},
                  {"staleness", first.at("staleness")},
                  {"replication", plan_.servers->facts.replication},
                  {"failovers", failovers},
                  {"cpu_seconds", all_cpu_seconds}}}};
  });
}

}  // namespace

std::unique_ptr<Engine> make_server_engine(const EngineSetting& setting) {
  if (!setting.servers)
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("strategy '{}' in a job without parameter servers", setting.strategy),
                "trireme train ... --ps 2");
  return std::make_unique<ServerEngine>(setting);
}

}  // namespace trireme
