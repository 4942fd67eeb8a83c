// Parameter servers: parameters for those that may begin.
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/parameter_server_impl.h>
#include <algorithm>
#include <atomic>
#include <utility>

namespace trireme {
namespace {

using servers::lines_of;
using servers::ServerCall;
using servers::ServerReply;
using servers::ServerRequest;

constexpr Milliseconds kLook{50};            // Between two looks at those that wait.
constexpr uint64_t kSmallAnswer = 64 << 10;  // It goes into the buffers of a channel.
constexpr size_t kMostCounted = 4096;        // In one answer: a header has at most 1 MiB.

}  // namespace

void ParameterServer::Impl::pull(const ServerRequest& request, net::Responder responder) {
  Json wish = request.text.empty() ? Json::object() : Json::parse(request.text);
  const std::lock_guard lock(mutex);
  if (request.call == ServerCall::pull && !clock.has(request.worker))
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("worker {} pulls, and has not joined", request.worker));
  if (request.call == ServerCall::pull || request.call == ServerCall::push_pull) take_wish(wish);
  const Milliseconds longest = request.wait_ms > 0
                                   ? std::min(options.patience, Milliseconds(request.wait_ms))
                                   : options.patience;
  ServerRequest kept = request;
  kept.text = {};
  waiting.push_back({kept, std::move(wish), Deadline::after(longest), std::move(responder)});
}

// A round may end early: because a worker is to stop or to regroup, or because the workers are to
// meet. The last reason needs no round that ends before its first lease.
// A wish that comes when a round is over is for the next one: a worker may have left this round
// already, and all workers must leave it with the same decision.
void ParameterServer::Impl::take_wish(const Json& wish) {
  if (round.leases.is_over()) return;
  const bool stops = wish.value("stop", false), regroups = wish.value("regroup", false),
             meets = wish.value("meet", false);
  const int64_t limit = round.leases.handed_out();
  if ((stops && !round.stops) || (regroups && !round.regroups) ||
      (meets && limit > 0 && limit < round.leases.limit())) {
    servers::ServerUpdate decision;
    decision.stopped = {limit, stops || round.stops, regroups || round.regroups};
    decide(std::move(decision));
    end_round_if_last();
  }
}

const ParameterServer::Impl::Values& ParameterServer::Impl::values_now() {
  if (values_version == version) return values;
  values.reset();
  auto free = std::ranges::find_if(copies, [](const auto& copy) { return copy.use_count() == 1; });
  if (free == copies.end()) {
    auto copy = std::make_shared<Copy>();
    size_t lines = 1;
    for (size_t i = 0; i < shard.size(); ++i) lines += lines_of(shard.bytes(i));
    copy->memory = std::make_unique_for_overwrite<servers::MemoryLine[]>(lines);
    std::byte* at = copy->memory[0].bytes;
    for (size_t i = 0; i < shard.size(); ++i) {
      copy->pieces.push_back(at);
      at += lines_of(shard.bytes(i)) * servers::kMemoryLine;
    }
    free = copies.insert(copies.end(), std::move(copy));
  }
  std::atomic_thread_fence(std::memory_order_acquire);  // Its last reader has read all of it.
  shard.copy_to((*free)->pieces);
  values = *free;
  values_version = version;
  return values;
}

// A worker that wants a lease learns of the batches that were counted since it last asked.
bool ParameterServer::Impl::has_to_wait_for_lease(const Waiting& each, bool may_begin,
                                                  Json& told) {
  const int worker = each.request.worker;
  if (round.leases.is_over()) {
    told["over"] = true;
    told["limit"] = round.leases.limit();
    told["stop"] = round.stops;
    told["regroup"] = round.regroups;
  } else {
    const auto lease = may_begin ? round.leases.take(worker) : std::nullopt;
    if (!lease) return true;
    told["lease"] = *lease;
  }
  const auto seen = each.wish.value("seen", size_t{0});
  const size_t last = std::min(round.counted.size(), seen + kMostCounted);
  told["counted"] = Json::array();
  for (size_t i = seen; i < last; ++i) told["counted"].push_back(round.counted[i]);
  told["more"] = last < round.counted.size();
  return false;
}

bool ParameterServer::Impl::has_to_wait(const Waiting& each, Json& told) {
  if (!has_values) return true;
  if (each.request.call == ServerCall::follow) return false;
  const int64_t step = clock.step_to_begin(each.request.worker, each.request.clock);
  const bool may_begin = clock.may_begin(each.request.worker, step);
  if (each.wish.value("round", false)) {
    if (has_to_wait_for_lease(each, may_begin, told)) return true;
  } else if (!may_begin) {
    return true;
  }
  if (Json updates = decisions_for(each.request); !updates.is_null())
    told["updates"] = std::move(updates);
  return false;
}

std::vector<ParameterServer::Impl::Answer> ParameterServer::Impl::take_ready() {
  std::vector<Answer> ready;
  for (auto each = waiting.begin(); each != waiting.end();) {
    if (each->responder.cancelled()) {
      each = waiting.erase(each);
      continue;
    }
    Json told;
    if (has_to_wait(*each, told)) {
      ++each;
      continue;
    }
    const ServerRequest& request = each->request;
    const bool has_it = request.known == version;
    ++facts.pulls;
    facts.unchanged_pulls += has_it;
    Pulled& worker = pulled[request.worker];
    worker.version = version;
    worker.values = compensates ? values_now() : nullptr;
    ServerReply reply{.version = version,
                      .clock = request.call == ServerCall::follow
                                   ? request.clock
                                   : clock.step_to_begin(request.worker, request.clock),
                      .is_unchanged = has_it,
                      .compensates = compensates,
                      .has_all_beside = owner == 0 && has_all_beside(),
                      .text = told.is_null() ? "" : told.dump()};
    ready.push_back(
        {std::move(reply), has_it ? Values() : values_now(), std::move(each->responder)});
    each = waiting.erase(each);
  }
  return ready;
}

void ParameterServer::Impl::answer_the_waiting() {
  std::vector<Answer> ready;
  {
    const std::lock_guard lock(mutex);
    ready = take_ready();
  }
  send(std::move(ready));
}

void ParameterServer::Impl::send(std::vector<Answer> answers) const {
  const auto send_one = [this](Answer& answer) {
    net::Message message{encode(answer.reply), {}};
    if (answer.values) message.tensors = form;
    for (size_t i = 0; i < message.tensors.size(); ++i)
      message.tensors[i].data = answer.values->pieces[i];
    try {
      answer.responder.reply(message);
    } catch (const Error& error) {  // Such as limits of the client's.
      answer.responder.fail(error.code(), error.what());
    }
  };
  uint64_t bytes = 0;
  for (const net::Message::Tensor& tensor : form) bytes += tensor.note.bytes;
  // A large answer waits for its reader, so a slow worker would hold up the others.
  std::vector<std::jthread> apart;
  for (size_t i = 0; i < answers.size(); ++i)
    if (bytes > kSmallAnswer && i + 1 < answers.size())
      apart.emplace_back([&, i] { send_one(answers[i]); });
    else
      send_one(answers[i]);
}

std::string ParameterServer::Impl::reason_to_wait(const Waiting& each) const {
  if (!has_values) return "no worker has sent the first values";
  return clock.reason_to_wait(each.request.worker);
}

void ParameterServer::Impl::look_after_the_waiting(const std::stop_token& end) {
  std::unique_lock lock(mutex);
  while (!end.stop_requested()) {
    ends.wait_for(lock, end, kLook, [&] { return end.stop_requested(); });
    std::vector<std::pair<Waiting, std::string>> late;
    for (auto each = waiting.begin(); each != waiting.end();) {
      if (!each->deadline.expired()) {
        ++each;
        continue;
      }
      std::string why =
          fmt::format("worker {} could not begin its step {}: {}", each->request.worker,
                      each->request.clock, reason_to_wait(*each));
      late.emplace_back(std::move(*each), std::move(why));
      each = waiting.erase(each);
    }
    lock.unlock();
    for (auto& [each, why] : late) {
      if (each.request.wait_ms > 0)
        each.responder.reply({encode(ServerReply{.version = each.request.known,
                                                 .clock = each.request.clock,
                                                 .is_unchanged = true,
                                                 .is_early = true,
                                                 .text = why}),
                              {}});
      else
        each.responder.fail(ErrorCode::timeout, why);
    }
    lock.lock();
  }
}

}  // namespace trireme
