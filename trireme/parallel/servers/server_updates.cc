// Parameter servers: from pushes to updates.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
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

PushId id_of(const ServerRequest& request) {
  return {request.generation, request.worker, request.clock};
}

}  // namespace

ParameterServer::Impl::Gradients ParameterServer::Impl::gradients_in(
    const net::Request& message) const {
  Gradients gradients(shard.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (message.head.tensors[i].bytes == 0) continue;
    gradients[i] = message.tensors[i].data();
    if (options.refuses_nonfinite && !is_finite(shard, i, gradients[i]))
      throw Error(ErrorCode::corrupt, "parallel",
                  fmt::format("the gradient of '{}' has values that are NaN or infinite",
                              shard.parameters()[i].name),
                  "a smaller learning rate, or train.clip_norm");
  }
  return gradients;
}

// A later pull of the worker, or its joining again, changes nothing of its push.
void ParameterServer::Impl::note_origin(const ServerRequest& request, Push& push) const {
  push.from = std::max<int64_t>(0, request.known);
  if (const auto found = pulled.find(request.worker); found != pulled.end()) {
    push.from = std::max(push.from, found->second.version);
    push.then = found->second.values;
  }
}

// A worker has brought the decision about its last step everywhere before it holds the next one,
// so its earlier pushes are not needed.
void ParameterServer::Impl::hold(const ServerRequest& request, const net::Request& message) {
  // The mean over no samples is nothing.
  Push push{request.samples > 0 ? gradients_in(message) : Gradients(shard.size(), nullptr),
            request.samples, message.owner};
  const std::lock_guard lock(mutex);
  check_worker(request);  // A generation may have begun since the call came.
  note_origin(request, push);
  const PushId id = id_of(request);
  std::erase_if(held, [&](const auto& each) {
    return each.first.generation == id.generation && each.first.worker == id.worker;
  });
  ++facts.pushes;
  held[id] = std::move(push);
}

// Server 0: the clock judges.
void ParameterServer::Impl::push(const ServerRequest& request, const net::Request& message) {
  Push push{request.samples > 0 ? gradients_in(message) : Gradients(shard.size(), nullptr),
            request.samples, message.owner};
  if (!request.text.empty()) {
    const Json told = Json::parse(request.text);
    push.lease = told.value("lease", int64_t{-1});
    push.loss = told.value("loss", 0.0);
    push.rates = told.value("rates", std::vector<double>());
  }
  const std::lock_guard lock(mutex);
  check_worker(request);
  note_origin(request, push);
  if (!has_values)
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("worker {} pushes before the parameters have values", request.worker));
  const Verdict verdict = clock.push(request.worker, request.clock);
  ++facts.pushes;
  if (verdict == Verdict::repeated) ++facts.repeated_pushes;
  if (verdict == Verdict::late) {
    ++facts.late_pushes;
    round.leases.give_back(request.worker);
  }
  if (verdict == Verdict::repeated || verdict == Verdict::late) return;
  const PushId id = id_of(request);
  if (push.lease >= 0 && !round.leases.has(request.worker, push.lease))
    throw Error(ErrorCode::internal, "parallel",
                fmt::format("worker {} pushes lease {}, which it does not have", request.worker,
                            push.lease));
  held[id] = std::move(push);
  gathered.insert(id);
  if (verdict == Verdict::update) return decide({id});
  if (verdict == Verdict::complete) return decide_gathered();
  end_round_if_last();
}

// Server 0: the last pushes of a round have nobody to wait for.
void ParameterServer::Impl::end_round_if_last() {
  const bool all_pushed = round.leases.is_empty() && !round.leases.is_over() &&
                          round.leases.limit() - round.leases.done() == std::ssize(gathered);
  if (all_pushed && clock.flush()) decide_gathered();
}

// Server 0: these pushes are the next update.
void ParameterServer::Impl::decide(std::vector<PushId> pushes) {
  std::ranges::sort(pushes);
  ServerUpdate update{version + 1, std::move(pushes), {}, 1, compensates};
  for (const PushId& push : update.pushes) {
    gathered.erase(push);
    if (update.rates.empty()) update.rates = held.at(push).rates;
  }
  note_counted(update);
  apply(update);
}

// Server 0: the leases of an update are done.
void ParameterServer::Impl::note_counted(const ServerUpdate& update) {
  for (const PushId& id : update.pushes) {
    const Push& push = held.at(id);
    if (push.lease < 0) continue;
    round.leases.finish(id.worker, push.lease);
    round.counted.push_back({push.lease, id.worker, push.loss, push.samples, update.number});
  }
}

// Another worker may have brought these updates before.
void ParameterServer::Impl::follow(const std::vector<ServerUpdate>& updates) {
  for (const ServerUpdate& update : updates)
    if (update.number > version) apply(update);
}

void ParameterServer::Impl::apply(const ServerUpdate& update) {
  if (update.number != version + 1)
    throw Error(ErrorCode::corrupt, "parallel",
                fmt::format("update {} for server {}, which has made {}", update.number,
                            options.server, version),
                "the newest checkpoint: run the job again");
  for (const PushId& id : update.pushes)
    if (!held.contains(id))
      throw Error(ErrorCode::corrupt, "parallel",
                  fmt::format("update {} has the push of step {} of worker {}, which server {} "
                              "has not got",
                              update.number, id.clock, id.worker, options.server),
                  "the newest checkpoint: run the job again");
  const at::NoGradGuard no_grad;
  compensates = update.compensates;
  for (const PushId& id : update.pushes) ++facts.staleness[version - held.at(id).from];
  const Gradients sums = mean_of(update, update.scale);
  if (!update.rates.empty()) shard.set_rates(update.rates);
  shard.update(sums);
  ++version;
  for (const PushId& id : update.pushes) held.erase(id);
  decided.push_back(update);
  if (decided.size() > kKeptDecisions) decided.pop_front();
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
  return squares;
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

void ParameterServer::Impl::leave(int worker) {
  const std::lock_guard lock(mutex);
  // The lease of a push that counts is not for others.
  const auto is_its = [worker](const PushId& id) { return id.worker == worker; };
  if (std::ranges::none_of(gathered, is_its)) round.leases.give_back(worker);
  if (clock.leave(worker)) return decide_gathered();
  end_round_if_last();
}

}  // namespace trireme
