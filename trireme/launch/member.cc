#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/host_name.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/base/version.h>
#include <trireme/launch/event_queue.h>
#include <trireme/launch/member.h>
#include <trireme/launch/protocol.h>
#include <trireme/launch/stop_request.h>
#include <unistd.h>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace trireme::launch {
namespace {

// The coordinator ends a wait at its deadline and names the missing workers. If it does not
// answer, the wait ends here after this extra time.
constexpr Milliseconds kAnswerGrace{500};
constexpr Milliseconds kFarewell{5000};
constexpr size_t kEventsOfAHeartbeat = 256;

}  // namespace

struct Member::Impl {
  Impl(net::Endpoint where, std::string secret, Task own_task, int own_generation,
       MemberOptions member_options)
      : coordinator(std::move(where)),
        token(std::move(secret)),
        task(std::move(own_task)),
        generation(own_generation),
        options(std::move(member_options)) {
    if (!options.phases) options.phases = std::make_shared<PhasePage>();
    options.phases->set(Phase::connecting, -1);
  }
  ~Impl() { stop_heart(); }

  net::ClientEvents events();
  void receive(const Json& message);
  void coordinator_closed(const std::string& reason);
  void lose(LostWorker who);
  void send(Json message);
  void join(Json who, Facts must_agree, Deadline deadline);
  bool is_worker() const { return task.role == kWorkerRole; }
  void require_worker(const char* what) const;
  void require_role(const std::string& role) const;
  void await_join(Deadline deadline);
  Json request(Json message, const std::string& what, Deadline deadline);
  Json ask(Json message, const std::string& what) {
    return request(std::move(message), what, Deadline::after(options.timeout));
  }
  void beat();
  void send_events();
  void stop_heart();
  Error coordinator_silent(const std::string& what, Deadline deadline) const;

  const net::Endpoint coordinator;
  const std::string token;
  const Task task;
  const int generation;
  MemberOptions options;
  std::vector<Peer> peers;  // Written by the constructor only.
  std::atomic<bool> is_lost{false};
  std::atomic<bool> regroup_wanted{false};
  std::atomic<bool> finish_wanted{false};
  EventQueue events_told{kEventsOfAHeartbeat};

  std::mutex mutex;  // Guards the members below.
  std::condition_variable changed;
  std::optional<Json> admission;  // The message joined or refused.
  // The replies to open requests, by id; empty until the reply comes.
  std::map<int64_t, std::optional<Json>> replies;
  int64_t next_request = 1;
  std::optional<LostWorker> lost;
  TaskView tasks;
  bool coordinator_gone = false;
  bool left = false;
  bool heart_stopped = false;

  std::thread heart;
  std::unique_ptr<net::ControlClient> client;  // The last: its thread uses all of the above.
};

net::ClientEvents Member::Impl::events() {
  return {.received = [this](Json message) { receive(message); },
          .closed = [this](const std::string& reason) { coordinator_closed(reason); }};
}

void Member::Impl::receive(const Json& message) {
  const std::string op = message.at("op").get<std::string>();
  if (const int its = message.at("generation").get<int>(); its != generation && op != "refused") {
    log_warning("launch: ignored a message '{}' of generation {} in generation {}", op, its,
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
    throw Error(ErrorCode::not_found, "launch", fmt::format("the job has no role '{}'", role),
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
    throw Error(ErrorCode::invalid_argument, "launch",
                fmt::format("{}: {} is no worker", what, task.name()),
                "call it in workers only; side tasks use the key-value store");
}

void Member::Impl::await_join(Deadline deadline) {
  std::unique_lock lock(mutex);
  const bool answered = changed.wait_until(lock, deadline.at() + kAnswerGrace,
                                           [&] { return admission || coordinator_gone; });
  if (!answered) throw coordinator_silent("joining the job", deadline);
  if (!admission)
    throw Error(ErrorCode::peer_lost, "launch", lost->describe(),
                "check the coordinator's output");
  if (const auto failure = failure_in(*admission)) throw failure->error();
  for (const Json& peer : admission->at("peers"))
    peers.push_back({peer.at("worker").get<int>(), peer.at("host").get<std::string>(),
                     peer.at("address").get<std::string>(), peer.at("pid").get<int>()});
}

Json Member::Impl::request(Json message, const std::string& what, Deadline deadline) {
  std::unique_lock lock(mutex);
  if (left)
    throw Error(ErrorCode::invalid_argument, "launch",
                fmt::format("{}: {} has left the job already", what, task.name()),
                "call leave() last");
  if (coordinator_gone)
    throw Error(ErrorCode::peer_lost, "launch", fmt::format("{}: {}", what, lost->describe()));
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
    throw Error(ErrorCode::peer_lost, "launch", fmt::format("{}: {}", what, lost->describe()));
  if (left)
    throw Error(ErrorCode::aborted, "launch",
                fmt::format("{}: {} left the job meanwhile", what, task.name()));
  throw coordinator_silent(what, deadline);
}

Error Member::Impl::coordinator_silent(const std::string& what, Deadline deadline) const {
  return Error(ErrorCode::timeout, "launch",
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
  if (const EventBatch batch = events_told.take(); !batch.empty()) send(events_message(batch));
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

void Member::agree(const std::string& what, const std::map<std::string, std::string>& facts) {
  impl_->require_worker("agree()");
  impl_->ask({{"op", "agree"}, {"what", what}, {"facts", facts}},
             fmt::format("comparing '{}' with the other workers", what));
}

void Member::barrier(const std::string& name) {
  impl_->require_worker("barrier()");
  impl_->ask({{"op", "barrier"}, {"name", name}}, fmt::format("barrier '{}'", name));
}

void Member::set(const std::string& key, const std::string& value) {
  impl_->ask({{"op", "set"}, {"key", key}, {"value", bytes(value)}},
             fmt::format("setting key '{}'", key));
}

std::string Member::get(const std::string& key, Deadline deadline) {
  const Json reply = impl_->request({{"op", "get"}, {"key", key}},
                                    fmt::format("waiting for key '{}'", key), deadline);
  return bytes_from(reply.at("value"));
}

std::optional<std::string> Member::find(const std::string& key) {
  const Json reply =
      impl_->ask({{"op", "find"}, {"key", key}}, fmt::format("looking for key '{}'", key));
  if (!reply.contains("value")) return std::nullopt;
  return bytes_from(reply.at("value"));
}

int64_t Member::add(const std::string& key, int64_t amount) {
  return impl_
      ->ask({{"op", "add"}, {"key", key}, {"amount", amount}},
            fmt::format("adding to key '{}'", key))
      .at("sum")
      .get<int64_t>();
}

std::string Member::compare_set(const std::string& key, const std::string& expected,
                                const std::string& desired) {
  const Json reply = impl_->ask({{"op", "compare_set"},
                                 {"key", key},
                                 {"expected", bytes(expected)},
                                 {"desired", bytes(desired)}},
                                fmt::format("comparing and setting key '{}'", key));
  return bytes_from(reply.at("value"));
}

bool Member::erase(const std::string& key) {
  return impl_->ask({{"op", "erase"}, {"key", key}}, fmt::format("erasing key '{}'", key))
      .at("erased")
      .get<bool>();
}

int64_t Member::count_keys() {
  return impl_->ask({{"op", "count"}}, "counting keys").at("count").get<int64_t>();
}

PhasePage& Member::phases() { return *impl_->options.phases; }

std::optional<LostWorker> Member::lost() const {
  if (!is_lost()) return std::nullopt;
  std::lock_guard lock(impl_->mutex);
  return impl_->lost;
}

bool Member::is_lost() const { return impl_->is_lost; }

void Member::throw_if_lost() const {
  if (const auto who = lost())
    throw Error(ErrorCode::peer_lost, "launch", who->describe(),
                "run the job again; it continues from its last checkpoint");
}

std::vector<TaskPeer> Member::task_peers(const std::string& role) const {
  std::lock_guard lock(impl_->mutex);
  impl_->require_role(role);
  return impl_->tasks.present(role);
}

std::vector<TaskPeer> Member::wait_for(const std::string& role, Deadline deadline) const {
  std::unique_lock lock(impl_->mutex);
  impl_->require_role(role);
  const auto all_there = [&] { return impl_->tasks.missing(role).empty(); };
  impl_->changed.wait_until(lock, deadline.at(),
                            [&] { return all_there() || impl_->lost || impl_->left; });
  if (all_there()) return impl_->tasks.present(role);
  const std::string what = fmt::format("waiting for all tasks of the role '{}'", role);
  if (impl_->lost)
    throw Error(ErrorCode::peer_lost, "launch",
                fmt::format("{}: {}", what, impl_->lost->describe()),
                "run the job again; it continues from its last checkpoint");
  if (impl_->left)
    throw Error(ErrorCode::aborted, "launch",
                fmt::format("{}: {} left the job meanwhile", what, impl_->task.name()));
  throw Error(
      ErrorCode::timeout, "launch",
      fmt::format("{}: after {} these are missing: {}", what, format_duration(deadline.allowed()),
                  enumerate(impl_->tasks.missing(role))),
      "check their output, or allow more time");
}

std::vector<LostTask> Member::lost_tasks() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->tasks.lost();
}

bool Member::finish_wanted() const { return impl_->finish_wanted; }

int Member::generation() const { return impl_->generation; }
bool Member::regroup_wanted() const { return impl_->regroup_wanted; }
void Member::tell_first_step(int64_t step, const Json& facts) {
  impl_->send({{"op", "stepped"}, {"step", step}, {"facts", facts}});
}
Json Member::generations() {
  impl_->require_worker("generations()");
  return impl_->ask({{"op", "generations"}}, "asking for the job's generations").at("generations");
}

void Member::tell_event(monitor::Told told) { impl_->events_told.add(std::move(told)); }

Json Member::times() {
  return impl_->ask({{"op", "times"}}, "asking for the workers' times").at("times");
}

double Member::coordinator_cpu_seconds() {
  return impl_->ask({{"op", "cpu_seconds"}}, "asking for the coordinator's CPU time")
      .at("seconds")
      .get<double>();
}

void Member::leave() {
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->left) return;
    impl_->left = true;
    impl_->changed.notify_all();
  }
  impl_->stop_heart();
  impl_->send_events();
  impl_->send({{"op", "goodbye"}, {"stopped", stop_requested.load()}});
  impl_->client->close(Deadline::after(std::min(impl_->options.timeout, kFarewell)));
}

}  // namespace trireme::launch
