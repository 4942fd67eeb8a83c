#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/host_name.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/base/version.h>
#include <trireme/membership/member_impl.h>
#include <trireme/membership/protocol.h>
#include <unistd.h>

namespace trireme::membership {
namespace {

// The coordinator ends a wait at its deadline and names the missing workers. If it does not
// answer, the wait ends here after this extra time.
constexpr Milliseconds kAnswerGrace{500};

}  // namespace

net::ClientEvents Member::Impl::events() {
  return {.received = [this](Json message) { receive(message); },
          .closed = [this](const std::string& reason) { coordinator_closed(reason); }};
}

void Member::Impl::receive(const Json& message) {
  const std::string op = message.at("op").get<std::string>();
  if (const int its = message.at("generation").get<int>(); its != generation && op != "refused") {
    log_warning("membership: ignored a message '{}' of generation {} in generation {}", op, its,
                generation);
    return;
  }
  std::lock_guard lock(mutex);
  if (op == "joined" || op == "refused") {
    admission = message;
    for (const Json& each : message.value("tasks", Json::array())) tasks.note(each);
    if (message.contains("peers")) tasks.note_workers(message["peers"]);
  } else if (op == "task") {
    tasks.note(message);
  } else if (op == "workers") {
    tasks.note_workers(message.at("peers"));
  } else if (op == "finish") {
    finish_wanted = true;
  } else if (op == "regroup") {
    regroup_wanted = true;
  } else if (op == "lost") {
    lose(lost_from(message));
  } else if (op == "deadlock") {
    if (!lost) deadlock = failure_in(message);
    is_lost = true;
  } else if (op == "reply") {
    const auto waiting = replies.find(message.at("id").get<int64_t>());
    if (waiting != replies.end()) waiting->second = message;
  }
  changed.notify_all();
}

void Member::Impl::coordinator_closed(const std::string& reason) {
  const std::string what =
      net::ended_by_peer(reason)
          ? fmt::format("the coordinator at {} closed the connection", coordinator.describe())
          : fmt::format("the connection to the coordinator at {} broke: {}",
                        coordinator.describe(), reason);
  std::lock_guard lock(mutex);
  coordinator_gone = true;
  LostWorker itself;
  itself.host = coordinator.host;
  itself.reason = what;
  lose(std::move(itself));
  changed.notify_all();
}

void Member::Impl::require_role(const std::string& role) const {
  if (!tasks.has_role(role))
    throw Error(ErrorCode::not_found, "membership", fmt::format("the job has no role '{}'", role),
                fmt::format("one of {}; trireme launch --role {}=1 declares it",
                            enumerate(tasks.roles()), role));
}

// Only the first lost worker counts.
void Member::Impl::lose(LostWorker who) {
  if (lost) return;
  lost = std::move(who);
  is_lost = true;
}

void Member::Impl::send(Json message) {
  message["generation"] = generation;
  client->send(std::move(message));
}

// `who` is the part of the message that differs between workers and side tasks.
void Member::Impl::join(Json who, Facts must_agree, Deadline deadline) {
  client = std::make_unique<net::ControlClient>(
      coordinator, token, events(), deadline,
      net::ControlOptions{.throw_if_hopeless = options.throw_if_hopeless});
  must_agree[std::string(kVersionFact)] = std::string(version());
  who.update({{"op", "join"},
              {"host", own_host_name()},
              {"pid", static_cast<int>(getpid())},
              {"must_agree", std::move(must_agree)},
              {"timeout_ms", deadline.remaining().count()}});
  send(std::move(who));
  heart = std::thread([this] { beat(); });
  await_join(deadline);
  options.phases->set(Phase::starting, -1);
}

void Member::Impl::require_worker(const char* what) const {
  if (!is_worker())
    throw Error(ErrorCode::invalid_argument, "membership",
                fmt::format("{}: {} is no worker", what, task.name()),
                "call it in workers only; side tasks use the key-value store");
}

void Member::Impl::await_join(Deadline deadline) {
  std::unique_lock lock(mutex);
  const bool answered = changed.wait_until(lock, deadline.at() + kAnswerGrace,
                                           [&] { return admission || coordinator_gone; });
  if (!answered) throw coordinator_silent("joining the job", deadline);
  if (!admission)
    throw Error(ErrorCode::peer_lost, "membership", lost->describe(),
                "check the coordinator's output");
  if (const auto failure = failure_in(*admission)) throw failure->error();
  for (const Json& peer : admission->at("peers"))
    peers.push_back({peer.at("worker").get<int>(), peer.at("host").get<std::string>(),
                     peer.at("address").get<std::string>(), peer.at("pid").get<int>()});
}

Json Member::Impl::request(Json message, const std::string& what, Deadline deadline) {
  std::unique_lock lock(mutex);
  if (left)
    throw Error(ErrorCode::invalid_argument, "membership",
                fmt::format("{}: {} has left the job already", what, task.name()),
                "call leave() last");
  if (coordinator_gone)
    throw Error(ErrorCode::peer_lost, "membership", fmt::format("{}: {}", what, lost->describe()));
  const int64_t id = next_request++;
  replies[id] = std::nullopt;
  lock.unlock();
  message["id"] = id;
  message["timeout_ms"] = deadline.remaining().count();
  try {
    send(std::move(message));
  } catch (...) {
    lock.lock();
    replies.erase(id);
    throw;
  }
  lock.lock();
  changed.wait_until(lock, deadline.at() + kAnswerGrace,
                     [&] { return replies.at(id) || coordinator_gone || left; });
  const std::optional<Json> reply = std::move(replies.at(id));
  replies.erase(id);
  if (reply) {
    if (const auto failure = failure_in(*reply)) throw failure->error();
    return *reply;
  }
  if (coordinator_gone)
    throw Error(ErrorCode::peer_lost, "membership", fmt::format("{}: {}", what, lost->describe()));
  if (left)
    throw Error(ErrorCode::aborted, "membership",
                fmt::format("{}: {} left the job meanwhile", what, task.name()));
  throw coordinator_silent(what, deadline);
}

Error Member::Impl::coordinator_silent(const std::string& what, Deadline deadline) const {
  return Error(ErrorCode::timeout, "membership",
               fmt::format("{}: the coordinator at {} did not answer within {}", what,
                           coordinator.describe(), format_duration(deadline.allowed())),
               "check that the coordinator's process is not stopped, or allow more time");
}

void Member::Impl::beat() {
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, options.heartbeat_interval,
                           [&] { return heart_stopped || coordinator_gone; })) {
    lock.unlock();
    if (const auto now = options.phases->read())
      send(beat_message(*now, std::chrono::steady_clock::now()));
    send_events();
    lock.lock();
  }
}

void Member::Impl::send_events() {
  if (const EventBatch batch = options.events->take(); !batch.empty()) send(events_message(batch));
}

void Member::Impl::stop_heart() {
  {
    std::lock_guard lock(mutex);
    heart_stopped = true;
    changed.notify_all();
  }
  if (heart.joinable()) heart.join();
}

Member::Member(const net::Endpoint& coordinator, const std::string& token, int worker, int workers,
               int generation, std::map<std::string, std::string> must_agree,
               MemberOptions options)
    : impl_(std::make_unique<Impl>(coordinator, token, Task{kWorkerRole, worker}, generation,
                                   options)) {
  impl_->join({{"worker", worker}, {"workers", workers}}, std::move(must_agree),
              Deadline::after(options.timeout));
}

Member::Member(const net::Endpoint& coordinator, const std::string& token, const Task& task,
               std::map<std::string, std::string> must_agree, MemberOptions options)
    : impl_(std::make_unique<Impl>(coordinator, token, task, kNoGeneration, options)) {
  impl_->join({{"role", task.role}, {"index", task.index}}, std::move(must_agree),
              Deadline::after(options.timeout));
}

Member::~Member() = default;

const std::vector<Peer>& Member::peers() const { return impl_->peers; }

}  // namespace trireme::membership
