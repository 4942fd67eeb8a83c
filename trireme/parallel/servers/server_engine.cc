#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <trireme/base/error.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/servers/server_engine_impl.h>
#include <trireme/parallel/step_facts.h>
#include <algorithm>
#include <cmath>
#include <utility>

namespace trireme {

// Adds up gradients of the mean loss over this rank's own samples. Returns the sum of the losses.
double ServerEngine::backward_sum(const Batch& batch, int passes) {
  double sum = 0;
  tables_.forget_step();  // The rows of a step that was abandoned.
  client_->forget_early();
  passes_.compute(batch, passes, [&](const at::Tensor& loss, int64_t samples, bool is_last) {
    if (!loss.defined()) return;
    const double weight =
        static_cast<double>(samples) / static_cast<double>(std::max<int64_t>(1, batch.size()));
    if (samples > 0) sum += loss.detach().item<double>() * static_cast<double>(samples);
    const LeaveEarly early(*this, is_last && samples > 0 && watch_);
    loss.backward(at::full_like(loss.detach(), weight));
  });
  tables_.take_gradients();
  return sum;
}

bool ServerEngine::gradients_are_finite() const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients = tables_.gradients();
  for (const NamedTensor& each : model_.parameters)
    if (each.tensor.grad().defined()) gradients.push_back(each.tensor.grad());
  return std::ranges::all_of(gradients, [](const at::Tensor& gradient) {
    return at::isfinite(gradient.sum()).item<bool>() || at::isfinite(gradient).all().item<bool>();
  });
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
  tables_.give_gradients();
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
  std::vector<at::Tensor> gradients = tables_.gradients();
  separate_gradients(model_.parameters);
  for (const NamedTensor& each : model_.parameters) gradients.push_back(each.tensor.grad());
  multiply(gradients, clip_factor(norm_of(gradients), setting_.options.clip_norm));
}

// Returns the mean loss; empty if it or a gradient is not finite.
std::optional<double> ServerEngine::compute(const Batch& batch, int passes) {
  const double loss = backward_sum(batch, passes) / static_cast<double>(batch.size());
  if (!std::isfinite(loss) || !gradients_are_finite()) return std::nullopt;
  clip_alone();
  tables_.give_gradients();
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

std::unique_ptr<Engine> make_server_engine(const EngineSetting& setting) {
  if (!setting.servers)
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("strategy '{}' in a job without parameter servers", setting.strategy),
                "trireme train ... --ps 2");
  return std::make_unique<ServerEngine>(setting);
}

}  // namespace trireme
