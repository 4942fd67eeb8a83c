// Parameter servers: from pushes to updates.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/parallel/fused/kernels.h>
#include <trireme/parallel/servers/parameter_server_impl.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace trireme {
namespace {

using servers::PushId;
using servers::ServerRequest;
using servers::ServerShard;
using servers::ServerUpdate;
using Verdict = plan::PushClock::Verdict;

// A worker brings each decision to the servers at once, so that older ones have come long ago.
constexpr size_t kKeptDecisions = 4096;

bool is_finite(const ServerShard& shard, size_t i, void* gradient) {
  const int64_t count = shard.piece(i).count;
  switch (shard.parameters()[i].tensor.scalar_type()) {
    case at::kFloat:
      return std::isfinite(fused::sum_of_squares(static_cast<const float*>(gradient), count));
    case at::kDouble:
      return std::isfinite(fused::sum_of_squares(static_cast<const double*>(gradient), count));
    default: return at::isfinite(shard.tensor_in(i, gradient)).all().item<bool>();
  }
}

// float32 or float64.
void decode(const compression::PushCodec& codec, const std::byte* code, const at::Tensor& values) {
  if (values.scalar_type() == at::kFloat)
    return codec.decode(code, values.numel(), values.mutable_data_ptr<float>());
  const at::Tensor floats = at::empty({values.numel()}, at::kFloat);
  codec.decode(code, values.numel(), floats.mutable_data_ptr<float>());
  values.copy_(floats);
}

PushId id_of(const ServerRequest& request) {
  return {request.generation, request.worker, request.clock};
}

}  // namespace

// `held_by` keeps the memory of the gradients.
ParameterServer::Impl::Gradients ParameterServer::Impl::gradients_in(
    const net::Request& message, std::shared_ptr<void>& held_by) const {
  Gradients gradients(shard.size());
  net::Placement room;
  if (codec) {
    std::vector<net::TensorNote> notes;
    for (const net::Message::Tensor& each : form) notes.push_back(each.note);
    room = memory->place(notes);
    held_by = std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(
        std::move(held_by), room.owner);
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (message.head.tensors[i].bytes == 0) continue;
    gradients[i] = message.tensors[i].data();
    if (codec) {
      gradients[i] = room.places[i].data();
      decode(*codec, message.tensors[i].data(), shard.tensor_in(i, gradients[i]));
    }
    if (options.refuses_nonfinite && !is_finite(shard, i, gradients[i]))
      throw Error(ErrorCode::corrupt, "parallel",
                  fmt::format("the gradient of '{}' has values that are NaN or infinite",
                              shard.parameters()[i].name),
                  "a smaller learning rate, or train.clip_norm");
  }
  return gradients;
}

// The parameters with which the gradients were computed: those that came with them, or those that
// the worker got last. A later pull of the worker, or its joining again, changes nothing of its
// push.
void ParameterServer::Impl::note_origin(const ServerRequest& request, Push& push) const {
  push.from = std::max<int64_t>(0, request.known);
  const auto found = pulled.find(request.worker);
  if (found == pulled.end()) return;
  push.from = std::max(push.from, found->second.version);
  if (!push.then) push.then = found->second.values;
}

ParameterServer::Impl::Push ParameterServer::Impl::push_in(const ServerRequest& request,
                                                           const net::Request& message) const {
  // The mean over no samples is nothing.
  Push push{Gradients(shard.size(), nullptr), request.samples, message.owner};
  if (request.samples > 0) push.gradients = gradients_in(message, push.owner);
  const size_t of_pieces = message.tensors.size() - 2 * request.tables.size();
  if (request.samples > 0) push.rows = rows_in(request, message);
  if (of_pieces == 2 * shard.size()) {
    auto then = std::make_shared<Copy>();
    for (size_t i = shard.size(); i < of_pieces; ++i)
      then->pieces.push_back(message.tensors[i].data());
    push.then = std::move(then);
  }
  if (request.text.empty()) return push;
  const Json told = Json::parse(request.text);
  push.lease = told.value("lease", int64_t{-1});
  push.loss = told.value("loss", 0.0);
  push.rates = told.value("rates", std::vector<double>());
  push.early = told.value("early", Json());
  return push;
}

void ParameterServer::Impl::hold_early(const ServerRequest& request, const net::Request& message) {
  std::shared_ptr<void> held_by = message.owner;
  const Gradients some = gradients_in(message, held_by);
  const auto attempt = Json::parse(request.text).at("attempt").get<int64_t>();
  const std::lock_guard lock(mutex);
  check_worker(request);
  Early& all = early[request.worker];
  if (attempt < all.attempt) return;  // It comes from a connection that broke.
  if (attempt > all.attempt)
    all = {id_of(request), attempt, Gradients(shard.size(), nullptr), 0, {}};
  for (size_t i = 0; i < some.size(); ++i) {
    if (some[i] == nullptr) continue;
    if (all.gradients[i] == nullptr) ++all.count;
    all.gradients[i] = some[i];
  }
  all.owners.push_back(std::move(held_by));
}

// The push has the gradients that did not come early, and says how many did. A push that is made
// again has them all.
void ParameterServer::Impl::take_early(const PushId& id, Push& push) {
  if (push.early.is_null()) return;
  const auto found = early.find(id.worker);
  // A push of a connection that broke may come while those of a later step are here.
  if (found == early.end() || found->second.id != id ||
      found->second.attempt != push.early.at("attempt").get<int64_t>() ||
      found->second.count != push.early.at("count").get<int64_t>())
    servers::refuse_call(
        fmt::format("server {} has not got the gradients that worker {} has sent "
                    "before its push of step {}",
                    options.server, id.worker, id.clock));
  Early all = std::move(early.extract(found).mapped());
  for (size_t i = 0; i < all.gradients.size(); ++i)
    if (all.gradients[i] != nullptr) push.gradients[i] = all.gradients[i];
  facts.early_pieces += all.count;
  all.owners.push_back(std::move(push.owner));
  push.owner = std::make_shared<std::vector<std::shared_ptr<void>>>(std::move(all.owners));
}

// The worker says which of its earlier pushes are not needed any more, because all servers know
// what became of them. A push of a connection that broke may come behind later ones: then the
// worker made this call again long ago.
void ParameterServer::Impl::hold(const ServerRequest& request, const net::Request& message) {
  Push push = push_in(request, message);
  const std::lock_guard lock(mutex);
  check_worker(request);  // A generation may have begun since the call came.
  const PushId id = id_of(request);
  take_early(id, push);
  note_origin(request, push);
  const auto is_its = [&](const PushId& other) {
    return other.generation == id.generation && other.worker == id.worker;
  };
  if (const auto later = held.upper_bound(id); later != held.end() && is_its(later->first)) return;
  std::erase_if(held, [&](const auto& each) {
    return is_its(each.first) && each.first.clock < request.follows;
  });
  ++facts.pushes;
  held[id] = std::move(push);
}

void ParameterServer::Impl::push(const ServerRequest& request, const net::Request& message) {
  Push push = push_in(request, message);
  const std::lock_guard lock(mutex);
  check_worker(request);
  take_early(id_of(request), push);
  note_origin(request, push);
  if (!has_values)
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("worker {} pushes before the parameters have values", request.worker));
  judge(id_of(request), std::move(push));
}

// The clock: whether a push counts, and whether it makes up an update.
void ParameterServer::Impl::judge(const PushId& id, Push push) {
  // Another worker may have the lease, or have done its batch, since a copy became the clock.
  const bool may_count = push.lease < 0 || round.leases.claim(id.worker, push.lease);
  const Verdict verdict =
      may_count ? clock.push(id.worker, id.clock) : clock.drop(id.worker, id.clock);
  ++facts.pushes;
  if (verdict == Verdict::repeated) ++facts.repeated_pushes;
  if (verdict == Verdict::late) {
    ++facts.late_pushes;
    round.leases.give_back(id.worker);
  }
  if (verdict == Verdict::repeated || verdict == Verdict::late) return;
  held[id] = std::move(push);
  gathered.insert(id);
  if (verdict == Verdict::update || verdict == Verdict::complete) return decide_gathered();
  end_round_if_last();
}

// A copy that has become the clock: the worker has pushed these before, and the clock of then is
// lost with its decisions.
void ParameterServer::Impl::judge_held(const ServerRequest& request) {
  if (!has_values) return;
  std::vector<PushId> pushes;
  if (!clock.has(request.worker)) return;  // It has left before.
  for (const auto& [id, push] : held)
    if (id.generation == request.generation && id.worker == request.worker &&
        id.clock < request.clock && !gathered.contains(id))
      pushes.push_back(id);
  for (const PushId& id : pushes) judge(id, std::move(held.extract(id).mapped()));
}

// The decisions that some server may lack, as far as this worker and the others know; null: the
// worker does not want them.
Json ParameterServer::Impl::decisions_for(const ServerRequest& request) {
  if (request.follows < -1) return {};
  followed = std::max(followed, request.follows);
  std::vector<ServerUpdate> updates;
  for (const ServerUpdate& update : decided)
    if (update.number > followed) updates.push_back(update);
  return servers::to_json(updates);
}

// The clock: the last pushes of a round have nobody to wait for.
void ParameterServer::Impl::end_round_if_last() {
  const bool all_pushed = round.leases.is_empty() && !round.leases.is_over() &&
                          round.leases.limit() - round.leases.done() == std::ssize(gathered);
  if (all_pushed && clock.flush()) decide_gathered();
}

// The clock: the pushes that wait are the next update.
void ParameterServer::Impl::decide_gathered() {
  ServerUpdate update;
  update.pushes = {gathered.begin(), gathered.end()};
  gathered.clear();
  for (const PushId& id : update.pushes) {
    const Push& push = held.at(id);
    if (update.rates.empty()) update.rates = push.rates;
    if (push.lease >= 0)
      update.counted.push_back({push.lease, id.worker, push.loss, push.samples});
  }
  decide(std::move(update));
}

void ParameterServer::Impl::decide(ServerUpdate update) {
  update.number = version + 1;
  update.term = term;
  update.compensates = compensates;
  apply(update);
  for (Impl* const each : beside) each->follow_beside(update);
}

// The copies in the process of the clock need no message: they are lost with it, so nobody acts by
// a decision that does not happen.
void ParameterServer::Impl::follow_beside(const ServerUpdate& update) {
  const std::lock_guard lock(mutex);
  if (update.number != version + 1) return;  // A worker tells it all that it lacks.
  try {
    follow({update});
  } catch (const Error& error) {
    log_warning("server {} does not follow with the pieces of server {}: {}", options.server,
                owner, error.what());
  }
}

bool ParameterServer::Impl::has_all_beside() const {
  return std::ranges::all_of(beside, [this](const Impl* each) {
    const std::lock_guard lock(each->mutex);
    return each->version == version;
  });
}

// Another worker may have brought these updates before. Returns false for those of a clock whose
// place another one has taken.
bool ParameterServer::Impl::follow(const std::vector<ServerUpdate>& updates) {
  for (const ServerUpdate& update : updates) {
    const bool is_agreed = update.term == ServerUpdate::kAgreed;
    if (!is_agreed && update.term < term && update.number > term_from) return false;
    // The workers compute the step again, from the rows before it.
    if (is_agreed && update.number <= version && update.number == rows_version + 1)
      update_rows(update);
    if (update.number <= version) continue;
    if (update.term > term) {
      term = update.term;
      term_from = version;
      is_clock = false;
    }
    apply(update);
  }
  return true;
}

void ParameterServer::Impl::require_pushes_of(const ServerUpdate& update) const {
  if (update.number != version + 1)
    throw Error(ErrorCode::corrupt, "parallel",
                fmt::format("update {} for server {}, which has made {}", update.number,
                            options.server, version),
                "the newest checkpoint: run the job again");
  if (!has_values)
    throw Error(ErrorCode::corrupt, "parallel",
                fmt::format("update {} for server {}, which has no values yet", update.number,
                            options.server),
                "the newest checkpoint: run the job again");
  for (const PushId& id : update.pushes)
    if (!held.contains(id))
      throw Error(ErrorCode::corrupt, "parallel",
                  fmt::format("update {} has the push of step {} of worker {}, which server {} "
                              "has not got",
                              update.number, id.clock, id.worker, options.server),
                  "the newest checkpoint: run the job again");
}

void ParameterServer::Impl::apply(const ServerUpdate& update) {
  require_pushes_of(update);
  if (tables.size() > 0 && rows_version != version && !update.pushes.empty())
    throw Error(ErrorCode::corrupt, "parallel",
                fmt::format("update {} for server {}, whose rows of embedding tables have the "
                            "updates up to {}",
                            update.number, options.server, rows_version),
                "the newest checkpoint: run the job again");
  const at::NoGradGuard no_grad;
  compensates = update.compensates;
  if (!update.pushes.empty()) {
    for (const PushId& id : update.pushes) ++facts.staleness[version - held.at(id).from];
    const Gradients sums = mean_of(update, update.scale);
    if (!update.rates.empty()) shard.set_rates(update.rates);
    update_rows(update);
    shard.update(sums);
    ++facts.updates;
  }
  rows_version = ++version;
  for (const PushId& id : update.pushes) held.erase(id);
  if (owner == 0) {
    if (!is_clock) mirror_clock(update);
    note_round(update);
  }
  decided.push_back(update);
  if (decided.size() > kKeptDecisions) decided.pop_front();
}

// A copy of the clock knows the pushes that count.
void ParameterServer::Impl::mirror_clock(const ServerUpdate& update) {
  std::vector<plan::PushClock::Pushed> pushed;
  for (const PushId& id : update.pushes)
    if (id.generation == generation) pushed.push_back({id.worker, id.clock});
  if (!pushed.empty()) clock.follow(pushed);
  if (update.mode) clock.change(*update.mode);
}

void ParameterServer::Impl::note_round(const ServerUpdate& update) {
  for (const servers::CountedLease& each : update.counted) {
    round.leases.finish(each.lease);
    round.counted.push_back(servers::to_json(each));
  }
  if (!update.stopped) return;
  round.leases.stop_at(update.stopped->limit);
  round.stops = round.stops || update.stopped->stop;
  round.regroups = round.regroups || update.stopped->regroup;
}

// The mean over all samples, in the order of the workers, so that the bits do not depend on the
// order in which pushes came. It uses the memory of the pushes.
ParameterServer::Impl::Gradients ParameterServer::Impl::mean_of(const ServerUpdate& update,
                                                                double scale) {
  double samples = 0;
  for (const PushId& id : update.pushes) samples += static_cast<double>(held.at(id).samples);
  Gradients sums(shard.size());
  for (const PushId& id : update.pushes) {
    Push& push = held.at(id);
    if (push.samples == 0) continue;
    if (update.compensates) compensate(push);
    const double share = static_cast<double>(push.samples) / samples * scale;
    for (size_t i = 0; i < sums.size(); ++i) {
      if (push.gradients[i] == nullptr) continue;
      const at::Tensor gradient = shard.tensor_in(i, push.gradients[i]);
      if (sums[i] != nullptr) {
        shard.tensor_in(i, sums[i]).add_(gradient, share);
        continue;
      }
      if (share != 1) gradient.mul_(share);
      sums[i] = push.gradients[i];
    }
  }
  return sums;
}

// The gradients stay as they are.
double ParameterServer::Impl::squares_of(const ServerUpdate& update) {
  const at::NoGradGuard no_grad;
  double samples = 0, squares = 0;
  for (const PushId& id : update.pushes) {
    if (!held.contains(id))
      throw Error(ErrorCode::internal, "parallel",
                  fmt::format("worker {} has not pushed its step {}", id.worker, id.clock));
    samples += static_cast<double>(held.at(id).samples);
  }
  for (size_t i = 0; i < shard.size(); ++i) {
    at::Tensor sum;
    for (const PushId& id : update.pushes) {
      const Push& push = held.at(id);
      if (push.samples == 0 || push.gradients[i] == nullptr) continue;
      const at::Tensor part =
          shard.tensor_in(i, push.gradients[i]) * (static_cast<double>(push.samples) / samples);
      sum = sum.defined() ? sum.add_(part) : part;
    }
    if (sum.defined()) squares += sum.square().sum().item<double>();
  }
  return squares + tables.squares(shares_of_rows(update, 1));
}

// g + lambda g g (w_now - w_pulled): the diagonal of the outer product of gradients stands for the
// Hessian (Zheng et al. 2017, equation 10).
void ParameterServer::Impl::compensate(Push& push) {
  if (!push.then) return;
  for (size_t i = 0; i < push.gradients.size(); ++i) {
    if (push.gradients[i] == nullptr) continue;
    const at::Tensor gradient = shard.tensor_in(i, push.gradients[i]);
    const at::Tensor distance =
        shard.parameters()[i].tensor - shard.tensor_in(i, push.then->pieces[i]);
    gradient.add_(gradient * gradient * distance, options.compensation);
  }
}

plan::ConsistencyOptions ParameterServer::Impl::change(
    const plan::ConsistencyOptions& consistency) {
  const std::lock_guard lock(mutex);
  if (!is_clock || !has_values) servers::refuse_call("this server does not have the clock");
  const plan::ConsistencyOptions before = clock.options();
  if (clock.change(consistency)) decide_gathered();
  compensates = consistency.consistency == plan::Consistency::delay_compensated;
  ServerUpdate decision;
  decision.mode = consistency;
  decide(std::move(decision));
  return before;
}

void ParameterServer::Impl::leave(int worker) {
  const std::lock_guard lock(mutex);
  if (!is_clock) {
    clock.leave(worker);
    return;
  }
  // The lease of a push that counts is not for others.
  const auto is_its = [worker](const PushId& id) { return id.worker == worker; };
  if (std::ranges::none_of(gathered, is_its)) round.leases.give_back(worker);
  if (clock.leave(worker)) return decide_gathered();
  end_round_if_last();
}

}  // namespace trireme
