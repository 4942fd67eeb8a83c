#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/membership/coordinator_impl.h>
#include <ctime>

namespace trireme::membership {
namespace {

using Clock = std::chrono::steady_clock;

double process_cpu_seconds() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) * 1e-9;
}

// Whether a connection of this purpose may send this message: its proof holds for no other
// purpose.
bool may_say(net::Purpose purpose, const std::string& op) {
  switch (purpose) {
    case net::Purpose::worker: return op != "arrive" && op != "resize";
    case net::Purpose::arrival: return op == "arrive";
    case net::Purpose::scale: return op == "resize" || op == "set" || op == "find";
    case net::Purpose::probe:
    case net::Purpose::mesh:
    case net::Purpose::requests: break;
  }
  return false;
}

Clock::time_point deadline_in(const Json& message, Clock::time_point now) {
  return now + saturated(Milliseconds(message.at("timeout_ms").get<int64_t>()));
}

JoinRequest join_request_from(const Json& message, const std::string& peer,
                              Clock::time_point now) {
  return {message.at("worker").get<int>(),       message.at("workers").get<int>(),
          message.at("generation").get<int>(),   message.at("host").get<std::string>(),
          net::parse_endpoint(peer).host,        message.at("pid").get<int>(),
          message.at("must_agree").get<Facts>(), deadline_in(message, now)};
}

}  // namespace

net::ServerEvents Coordinator::Impl::events() {
  return {.opened =
              [this](net::ConnectionId connection, const std::string& peer, net::Purpose purpose) {
                std::lock_guard lock(mutex);
                peers[connection] = peer;
                purposes[connection] = purpose;
              },
          .received =
              [this](net::ConnectionId connection, Json message) {
                std::lock_guard lock(mutex);
                receive(connection, message);
              },
          .closed =
              [this](net::ConnectionId connection, const std::string& reason) {
                std::lock_guard lock(mutex);
                end(connection, reason);
              },
          .tick =
              [this] {
                std::lock_guard lock(mutex);
                if (superseded) return;
                const auto now = Clock::now();
                look_at_all(now);
                deliver(membership->tick(now));
                deliver(store.tick(now));
                tick_tasks(now);
                note_lost_workers(now);
                if (generations) generations->tick(now);
              }};
}

// Throws if it cannot read the message: the server then closes the connection.
void Coordinator::Impl::receive(net::ConnectionId connection, const Json& message) {
  if (superseded) return server->close(connection);
  const auto now = Clock::now();
  if (const auto op = message.at("op").get<std::string>(); !may_say(purposes.at(connection), op))
    throw Error(ErrorCode::corrupt, "membership",
                fmt::format("a message '{}' on a connection of another purpose", op));
  if (stands_by && message.at("op") == "arrive" && message.contains("former")) {
    const Former former = Former::from_json(message["former"]);
    if (!generations || former.generation > generations->generation()) take_over(former, now);
  }
  if (of_operator(connection, message, now)) return;
  if (of_side_tasks(connection, message, now)) return;
  if (generations && of_generations(connection, message, now)) return;
  if (message.at("op") == "join") {
    // The worker comes from a generation that this coordinator has given up.
    if (stands_by && !generations) return server->close(connection);
    return deliver(join(connection, message, now), connection);
  }
  if (!worker_of.contains(connection) && !of_earlier_generations.contains(connection))
    throw Error(ErrorCode::corrupt, "membership", "a message came before its sender had joined");
  if (const auto refused = membership->refuse_generation(message.at("generation").get<int>())) {
    if (message.contains("id"))
      deliver(
          {{Membership::Outgoing::kSender, reply_to(message.at("id").get<int64_t>(), *refused)}},
          connection);
    return;
  }
  if (!worker_of.contains(connection)) return;
  deliver(handle(connection, message, now));
}

Membership::Messages Coordinator::Impl::join(net::ConnectionId connection, const Json& message,
                                             Clock::time_point now) {
  if (worker_of.contains(connection))
    throw Error(ErrorCode::corrupt, "membership", "a worker joined twice on one connection");
  const JoinRequest request = join_request_from(message, peers.at(connection), now);
  const auto refused = refuse_worker(request);
  auto messages = refused
                      ? Membership::Messages{{Membership::Outgoing::kSender, refusal(*refused)}}
                      : membership->join(request, now);
  for (const auto& [to, answer] : messages) {
    if (to != Membership::Outgoing::kSender) continue;
    log_warning("membership: refused {} as worker {}: {}", peers.at(connection), request.worker,
                answer.at("what").get<std::string>());
    return messages;
  }
  worker_of[connection] = request.worker;
  connection_of[request.worker] = connection;
  if (generations) generations->joined(request.worker);
  // The worker was not there when the others were told to regroup.
  if (generations && generations->is_interrupted()) server->send(connection, regroup_message());
  return messages;
}

// Returns why the worker is refused before the rules of the generation look at it, if it is.
std::optional<Failure> Coordinator::Impl::refuse_worker(const JoinRequest& request) const {
  const std::string name = worker_name(request.worker, request.host);
  if (generations && generations->generation() < 0)
    return Failure{ErrorCode::invalid_argument,
                   fmt::format("{} cannot join generation {}: the job's first generation has not "
                               "formed yet",
                               name, request.generation),
                   "the same launcher command for all processes; a worker of an elastic job "
                   "arrives before it joins"};
  return side_tasks.refuse_worker(name, request.must_agree);
}

Membership::Messages Coordinator::Impl::handle(net::ConnectionId connection, const Json& message,
                                               Clock::time_point now) {
  const int worker = worker_of.at(connection);
  const std::string op = message.at("op").get<std::string>();
  if (op == "beat") {
    membership->beat(worker, beat_from(message, now), now);
    return {};
  }
  membership->heard(worker, now);
  if (op == "events") {
    events_told.add(events_from(message));
    return {};
  }
  if (op == "goodbye") {
    members_were_stopped = members_were_stopped || message.at("stopped").get<bool>();
    auto messages = membership->goodbye(worker);
    if (generations) generations->left(worker, now);
    return messages;
  }
  const auto id = message.at("id").get<int64_t>();
  if (op == "agree")
    return membership->agree(worker, id, message.at("what").get<std::string>(),
                             message.at("facts").get<Facts>(), now, deadline_in(message, now));
  if (op == "barrier")
    return membership->barrier(worker, id, message.at("name").get<std::string>(), now,
                               deadline_in(message, now));
  if (op == "generations") {
    Json reply = reply_to(id);
    reply["generations"] = generations ? generations->history() : Json::array();
    return {{worker, std::move(reply)}};
  }
  if (op == "times") {
    look_at_all(now);
    Json reply = reply_to(id);
    reply["times"] = membership->times();
    return {{worker, std::move(reply)}};
  }
  if (op == "cpu_seconds") {
    Json reply = reply_to(id);
    reply["seconds"] = process_cpu_seconds();
    return {{worker, std::move(reply)}};
  }
  return store.handle(worker, message, now);
}

void Coordinator::Impl::end(net::ConnectionId connection, const std::string& reason) {
  peers.erase(connection);
  purposes.erase(connection);
  of_earlier_generations.erase(connection);
  if (superseded) return;
  if (const auto watcher = watchers.find(connection); watcher != watchers.end())
    watcher->second = true;
  look_at_all(Clock::now());
  if (generations) generations->closed(connection, Clock::now());
  const auto found = worker_of.find(connection);
  if (found == worker_of.end()) return;
  const int worker = found->second;
  worker_of.erase(found);
  connection_of.erase(worker);
  if (worker >= kFirstSideTask) return lose_task(worker - kFirstSideTask, reason);
  if (generations && generations->is_waiting(worker)) return;  // It waits for the next one.
  deliver(membership->lost(worker, reason));
  // If the network broke the connection, it is not known whether the process ends.
  note_lost_workers(Clock::now(), {.ending = net::ended_by_peer(reason)});
}

void Coordinator::Impl::look_at_all(Clock::time_point now) {
  if (!look) return;
  for (const auto& [worker, connection] : connection_of) {
    if (worker >= kFirstSideTask) continue;  // Its heartbeats tell enough.
    if (const auto seen = look(generations ? generations->process_of(worker) : worker))
      membership->see(worker, *seen, now);
  }
}

// Tells an elastic job's generations which workers the membership rules found lost.
void Coordinator::Impl::note_lost_workers(Clock::time_point now, LostProcess how) {
  if (!generations) return;
  const int generation = options.generation;
  for (const LostWorker& lost : membership->take_lost()) {
    how.text = lost.describe();
    how.reason = lost.reason;
    how.circumstances = lost.circumstances;
    generations->lost_worker(lost.worker, lost.last, how, now);
    if (options.generation != generation) return;  // The next one has formed.
  }
}

// Handles messages of a command from outside the job, which may use its store. Returns false for
// others.
bool Coordinator::Impl::of_operator(net::ConnectionId connection, const Json& message,
                                    Clock::time_point now) {
  if (purposes.at(connection) != net::Purpose::scale) return false;
  if (message.at("op") == "resize") {
    if (generations) return false;
    server->send(connection, {{"op", "resized"},
                              {"generation", options.generation},
                              {"workers", options.workers},
                              {"refused", "the job is not elastic: --elastic was not given"}});
    return true;
  }
  for (Membership::Outgoing& each : store.handle(kOperator, message, now)) {
    if (each.to != kOperator) {
      deliver({std::move(each)});
      continue;
    }
    each.message["generation"] = kNoGeneration;
    server->send(connection, std::move(each.message));
  }
  return true;
}

// Handles messages of processes between two generations, and messages about generations. Returns
// false for other messages.
bool Coordinator::Impl::of_generations(net::ConnectionId connection, const Json& message,
                                       Clock::time_point now) {
  const std::string op = message.at("op").get<std::string>();
  if (op == "arrive") {
    generations->arrive(connection, message, now);
  } else if (op == "stepped") {
    if (message.at("generation") == options.generation)
      generations->stepped(message.at("step").get<int64_t>(), message.at("facts"), now);
  } else if (op == "resize") {
    const int target = message.at("target").get<int>();
    const std::string refused =
        stands_by && target > generations->target()
            ? "the launcher that started the job is gone, so no more workers can be started"
            : generations->resize(target, now);
    server->send(connection, {{"op", "resized"},
                              {"generation", options.generation},
                              {"workers", options.workers},
                              {"refused", refused}});
  } else {
    return false;
  }
  return true;
}

Generations::Actions Coordinator::Impl::actions() {
  return {.answer =
              [this](net::ConnectionId connection, Json message) {
                message["generation"] = options.generation;
                server->send(connection, std::move(message));
              },
          .close = [this](net::ConnectionId connection) { server->close(connection); },
          .start =
              [this](int generation, int workers) {
                options.generation = generation;
                options.workers = workers;
                // Connections of workers of the last generation do not count any more.
                std::erase_if(worker_of, [this](const auto& each) {
                  if (each.second >= kFirstSideTask) return false;
                  of_earlier_generations.insert(each.first);
                  return true;
                });
                std::erase_if(connection_of,
                              [](const auto& each) { return each.first < kFirstSideTask; });
                any_step_finished = any_step_finished || membership->any_step_finished();
                membership = std::make_unique<Membership>(options);
                store.begin_generation();
              },
          .lose = [this](int worker,
                         const std::string& reason) { deliver(membership->lost(worker, reason)); },
          .interrupt =
              [this] {
                for (const auto& [worker, connection] : connection_of)
                  if (worker < kFirstSideTask) server->send(connection, regroup_message());
              },
          .rules =
              [this] {
                Former former;
                former.coordinator = server->endpoint();
                former.membership = options;
                former.roles = side_tasks.roles();
                return former;
              },
          .is_own = [this](Roster::Process process) { return look && look(process).has_value(); }};
}

// Sends the messages, and ends the waits that can no longer succeed.
void Coordinator::Impl::deliver(const Membership::Messages& messages, net::ConnectionId sender) {
  const auto send = [&](const Membership::Outgoing& outgoing) {
    Json message = outgoing.message;
    message["generation"] = outgoing.to < kFirstSideTask ? options.generation : kNoGeneration;
    if (message["op"] == "joined" && !side_tasks.roles().empty())
      message["tasks"] = side_tasks.table();
    if (outgoing.to == Membership::Outgoing::kSender) {
      server->send(sender, std::move(message));
      server->close(sender);
    } else if (const auto found = connection_of.find(outgoing.to); found != connection_of.end()) {
      server->send(found->second, std::move(message));
    }
  };
  for (const auto& message : messages) send(message);
  for (const auto& message :
       store.fail_waits([this](int asker) { return nobody_to_wait_for(asker); }))
    send(message);
  tell_tasks_of_workers();
  changed.notify_all();
}

}  // namespace trireme::membership
