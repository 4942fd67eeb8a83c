#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/membership/coordinator_impl.h>
#include <algorithm>

namespace trireme::membership {
namespace {

TaskRequest task_request_from(const Json& message, const std::string& peer) {
  return {{message.at("role").get<std::string>(), message.at("index").get<int>()},
          message.at("host").get<std::string>(),
          net::parse_endpoint(peer).host,
          message.at("pid").get<int>(),
          message.at("must_agree").get<Facts>()};
}

// The rank of a side task's events. It is no worker's and not the launcher's, and differs for each
// task: the steps of two tasks are never put together.
int rank_of_events(int number) { return -2 - number; }

// A message of these kinds does not reach the store.
bool is_for_workers_only(const std::string& op) {
  return op == "agree" || op == "barrier" || op == "generations" || op == "times" ||
         op == "cpu_seconds" || op == "stepped";
}

}  // namespace

// Handles messages of side tasks and of other launchers. Returns false for other messages.
bool Coordinator::Impl::of_side_tasks(net::ConnectionId connection, const Json& message,
                                      Clock::time_point now) {
  const std::string op = message.at("op").get<std::string>();
  const auto sender = worker_of.find(connection);
  if (op == "watch") {
    watchers[connection] = false;
    if (is_finished) server->send(connection, {{"op", "finish"}, {"generation", kNoGeneration}});
  } else if (watchers.contains(connection)) {
    if (op == "ended") watchers[connection] = true;
  } else if (op == "join" && message.contains("role")) {
    // A coordinator that stands by does not know the job's roles yet.
    if (stands_by && !generations)
      server->close(connection);
    else
      join_task(connection, message, now);
  } else if (sender != worker_of.end() && sender->second >= kFirstSideTask) {
    from_task(sender->second - kFirstSideTask, message, now);
  } else {
    return false;
  }
  return true;
}

void Coordinator::Impl::join_task(net::ConnectionId connection, const Json& message,
                                  Clock::time_point now) {
  if (worker_of.contains(connection))
    throw Error(ErrorCode::corrupt, "membership", "a task joined twice on one connection");
  const TaskRequest request = task_request_from(message, peers.at(connection));
  if (const auto refused = side_tasks.join(request, membership->facts_of_workers(), now)) {
    log_warning("membership: refused {} as {}: {}", peers.at(connection), request.task.name(),
                refused->what);
    Json answer = refusal(*refused);
    answer["generation"] = kNoGeneration;
    server->send(connection, std::move(answer));
    return server->close(connection);
  }
  const int number = side_tasks.roles().number_of(request.task).value();
  worker_of[connection] = kFirstSideTask + number;
  connection_of[kFirstSideTask + number] = connection;
  server->send(connection,
               {{"op", "joined"},
                {"generation", kNoGeneration},
                {"peers", membership->has_started() ? membership->peers() : Json::array()},
                {"tasks", side_tasks.table()}});
  if (is_finished) server->send(connection, {{"op", "finish"}, {"generation", kNoGeneration}});
  tell_of_task(number);
}

void Coordinator::Impl::from_task(int number, const Json& message, Clock::time_point now) {
  const std::string op = message.at("op").get<std::string>();
  if (op == "beat") return side_tasks.beat(number, beat_from(message, now), now);
  side_tasks.heard(number, now);
  if (op == "goodbye") {
    side_tasks.goodbye(number);
    return tell_of_task(number);
  }
  if (op == "events") {
    EventBatch batch = events_from(message);
    for (monitor::Told& told : batch.events) told.rank = rank_of_events(number);
    return events_told.add(std::move(batch));
  }
  const int id = kFirstSideTask + number;
  if (!is_for_workers_only(op)) return deliver(store.handle(id, message, now));
  if (!message.contains("id")) return;
  deliver({{id, reply_to(message["id"].get<int64_t>(),
                         {ErrorCode::invalid_argument,
                          fmt::format("{} is no worker, and '{}' is for workers",
                                      side_tasks.roles().task_of(number).name(), op),
                          "call it in workers only"})}});
}

void Coordinator::Impl::lose_task(int number, const std::string& reason) {
  const auto lost = side_tasks.lost(number, reason);
  if (!lost) return;
  const int id = kFirstSideTask + number;
  if (const auto found = connection_of.find(id); found != connection_of.end()) {
    worker_of.erase(found->second);
    server->close(found->second);  // If it still lives, it learns that it is lost.
    connection_of.erase(found);
  }
  lost_tasks.push_back(number);
  store.forget_keys_of(id);
  tell_of_task(number);
  if (side_tasks.roles().role_of(number).on_loss == OnLoss::end_generation && !is_finished)
    deliver(membership->lost_task(*lost));
}

void Coordinator::Impl::tick_tasks(Clock::time_point now) {
  for (const auto& [number, reason] : side_tasks.tick(now)) lose_task(number, reason);
}

// Tells all workers and side tasks what has become of the task.
void Coordinator::Impl::tell_of_task(int number) {
  Json message = side_tasks.message(number);
  for (const auto& [worker, connection] : connection_of) {
    if (worker == kFirstSideTask + number) continue;
    message["generation"] = worker < kFirstSideTask ? options.generation : kNoGeneration;
    server->send(connection, message);
  }
}

// Tells the side tasks once of each generation that begins, and of its first lost worker.
void Coordinator::Impl::tell_tasks_of_workers() {
  if (side_tasks.roles().empty()) return;
  if (membership->has_started() && told_of_workers != options.generation) {
    told_of_workers = options.generation;
    send_to_tasks({{"op", "workers"}, {"peers", membership->peers()}});
  }
  const auto& lost = membership->first_lost();
  if (!lost || lost->task || told_of_loss == options.generation) return;
  told_of_loss = options.generation;
  send_to_tasks({{"op", "task"},
                 {"role", kWorkerRole},
                 {"index", lost->worker},
                 {"state", "lost"},
                 {"host", lost->host},
                 {"address", ""},
                 {"pid", lost->pid},
                 {"incarnation", 1},
                 {"reason", lost->reason}});
}

void Coordinator::Impl::send_to_tasks(Json message) {
  message["generation"] = kNoGeneration;
  for (const auto& [worker, connection] : connection_of)
    if (worker >= kFirstSideTask) server->send(connection, message);
}

// With side tasks, a wait may still end well when all other workers have left.
std::optional<Failure> Coordinator::Impl::nobody_to_wait_for(int asker) const {
  if (side_tasks.roles().empty()) return membership->nobody_to_wait_for(asker);
  if (asker >= kFirstSideTask && generations) return std::nullopt;  // Another generation may form.
  return membership->ended();
}

void Coordinator::report_lost_task(int number, const std::string& reason) {
  std::lock_guard lock(impl_->mutex);
  if (impl_->side_tasks.explain(number, reason)) impl_->tell_of_task(number);
  impl_->lose_task(number, reason);
}

std::vector<int> Coordinator::take_lost_tasks() {
  std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->lost_tasks, {});
}

PhaseAt Coordinator::last_phase_of_task(int number) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->side_tasks.last_phase(number);
}

bool Coordinator::task_is_present(int number) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->side_tasks.is_present(number);
}

bool Coordinator::task_has_joined(int number, int pid) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->side_tasks.pid_of(number) == pid;
}

bool Coordinator::other_workers_ended() const {
  std::lock_guard lock(impl_->mutex);
  return !impl_->anyone_left() &&
         std::ranges::all_of(impl_->watchers, [](const auto& each) { return each.second; });
}

void Coordinator::finish_tasks() {
  std::lock_guard lock(impl_->mutex);
  if (std::exchange(impl_->is_finished, true)) return;
  impl_->send_to_tasks({{"op", "finish"}});
  for (const auto& [connection, ended] : impl_->watchers)
    impl_->server->send(connection, {{"op", "finish"}, {"generation", kNoGeneration}});
}

}  // namespace trireme::membership
