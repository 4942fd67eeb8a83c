#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/launch/claim.h>
#include <trireme/launch/coordinator.h>
#include <trireme/launch/generations.h>
#include <trireme/launch/key_value_store.h>
#include <trireme/launch/protocol.h>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace trireme::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Milliseconds kLookAgain{100};
constexpr Milliseconds kProbeTimeout{500};

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
    case net::Purpose::scale: return op == "resize";
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

struct Coordinator::Impl {
  Impl(const MembershipOptions& membership_options, const std::optional<RosterOptions>& elastic,
       LookAt look_at)
      : options(membership_options),
        look(std::move(look_at)),
        membership(std::make_unique<Membership>(membership_options)) {
    if (elastic) generations.emplace(*elastic, actions());
  }

  net::ServerEvents events();
  void receive(net::ConnectionId connection, const Json& message);
  Membership::Messages handle(net::ConnectionId connection, const Json& message,
                              Clock::time_point now);
  Membership::Messages join(net::ConnectionId connection, const Json& message,
                            Clock::time_point now);
  void end(net::ConnectionId connection, const std::string& reason);
  void deliver(const Membership::Messages& messages, net::ConnectionId sender = 0);
  Generations::Actions actions();
  void take_over(const Former& former, Clock::time_point now);
  void give_up();
  void claim(Claim::For whom);
  void superseded_by(const std::string& other);
  void look_for_the_missing(const std::stop_token& stop, int generation);
  bool of_generations(net::ConnectionId connection, const Json& message, Clock::time_point now);
  void note_lost_workers(Clock::time_point now, LostProcess how = {});
  void look_at_all(Clock::time_point now);
  Json regroup_message() const { return {{"op", "regroup"}, {"generation", options.generation}}; }

  MembershipOptions options;  // The options of the current generation.
  const LookAt look;          // It may be empty.
  std::mutex mutex;           // Guards the members below.
  std::condition_variable changed;
  std::unique_ptr<Membership> membership;  // The rules of the current generation.
  std::optional<Generations> generations;  // Only elastic jobs have it.
  KeyValueStore store;
  std::unordered_map<net::ConnectionId, std::string> peers;  // The addresses of all connections.
  std::unordered_map<net::ConnectionId, net::Purpose> purposes;
  std::unordered_map<net::ConnectionId, int> worker_of;  // The workers that have joined.
  std::unordered_map<int, net::ConnectionId> connection_of;
  bool any_step_finished = false;  // A step was finished in an earlier generation.
  bool members_were_stopped = false;
  std::string token;
  bool stands_by = false;
  std::optional<net::EtcdUrl> etcd;  // Decides which process coordinates.
  bool superseded = false;  // Another coordinator took over, and this one does not stand by.
  std::unique_ptr<net::ControlServer> server;
  std::vector<std::jthread> probers;           // They use all of the above.
  std::vector<std::unique_ptr<Claim>> claims;  // They use them too. Only the last one counts.
};

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
                note_lost_workers(now);
                if (generations) generations->tick(now);
              }};
}

// Throws if it cannot read the message: the server then closes the connection.
void Coordinator::Impl::receive(net::ConnectionId connection, const Json& message) {
  if (superseded) return server->close(connection);
  const auto now = Clock::now();
  if (const auto op = message.at("op").get<std::string>(); !may_say(purposes.at(connection), op))
    throw Error(ErrorCode::corrupt, "launch",
                fmt::format("a message '{}' on a connection of another purpose", op));
  if (stands_by && message.at("op") == "arrive" && message.contains("former")) {
    const Former former = Former::from_json(message["former"]);
    if (!generations || former.generation > generations->generation()) take_over(former, now);
  }
  if (generations && of_generations(connection, message, now)) return;
  if (message.at("op") == "join") {
    // The worker comes from a generation that this coordinator has given up.
    if (stands_by && !generations) return server->close(connection);
    return deliver(join(connection, message, now), connection);
  }
  if (!worker_of.contains(connection))
    throw Error(ErrorCode::corrupt, "launch", "a message came before its sender had joined");
  if (const auto refused = membership->refuse_generation(message.at("generation").get<int>())) {
    if (message.contains("id"))
      deliver({{worker_of.at(connection), reply_to(message.at("id").get<int64_t>(), *refused)}});
    return;
  }
  deliver(handle(connection, message, now));
}

Membership::Messages Coordinator::Impl::join(net::ConnectionId connection, const Json& message,
                                             Clock::time_point now) {
  if (worker_of.contains(connection))
    throw Error(ErrorCode::corrupt, "launch", "a worker joined twice on one connection");
  const JoinRequest request = join_request_from(message, peers.at(connection), now);
  auto messages = membership->join(request, now);
  for (const auto& [to, answer] : messages) {
    if (to != Membership::Outgoing::kSender) continue;
    log_warning("launch: refused {} as worker {}: {}", peers.at(connection), request.worker,
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

Membership::Messages Coordinator::Impl::handle(net::ConnectionId connection, const Json& message,
                                               Clock::time_point now) {
  const int worker = worker_of.at(connection);
  const std::string op = message.at("op").get<std::string>();
  if (op == "beat") {
    membership->beat(worker, beat_from(message, now), now);
    return {};
  }
  membership->heard(worker, now);
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
  if (superseded) return;
  look_at_all(Clock::now());
  if (generations) generations->closed(connection, Clock::now());
  const auto found = worker_of.find(connection);
  if (found == worker_of.end()) return;
  const int worker = found->second;
  worker_of.erase(found);
  connection_of.erase(worker);
  if (generations && generations->is_waiting(worker)) return;  // It waits for the next one.
  deliver(membership->lost(worker, reason));
  // If the network broke the connection, it is not known whether the process ends.
  note_lost_workers(Clock::now(), {.ending = net::ended_by_peer(reason)});
}

void Coordinator::Impl::look_at_all(Clock::time_point now) {
  if (!look) return;
  for (const auto& [worker, connection] : connection_of)
    if (const auto seen = look(generations ? generations->process_of(worker) : worker))
      membership->see(worker, *seen, now);
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

// Takes over the job that `former` describes. This may happen again: if processes come from a
// later generation, which another coordinator formed, this coordinator's knowledge is old.
void Coordinator::Impl::take_over(const Former& former, Clock::time_point now) {
  give_up();
  options = former.membership;
  membership = std::make_unique<Membership>(options);
  generations.emplace(former, actions(), now);
  log_warning("launch: the coordinator at {} was lost; {} takes over after generation {}",
              former.coordinator.describe(), server->endpoint().describe(), former.generation);
  probers.emplace_back([this, generation = former.generation](const std::stop_token& stop) {
    look_for_the_missing(stop, generation);
  });
  if (etcd) claim(Claim::For::successor);
}

void Coordinator::Impl::claim(Claim::For whom) {
  const Claim::Events events{.held =
                                 [this](const std::stop_token& stop, Clock::time_point until) {
                                   const std::lock_guard lock(mutex);
                                   if (!stop.stop_requested() && generations)
                                     generations->claimed(until, Clock::now());
                                 },
                             .taken =
                                 [this](const std::stop_token& stop, const std::string& other) {
                                   const std::lock_guard lock(mutex);
                                   if (!stop.stop_requested()) superseded_by(other);
                                 }};
  claims.push_back(std::make_unique<Claim>(*etcd, server->endpoint(), token, whom, events));
}

// Gives up: the processes whose connections are closed will find the other coordinator.
void Coordinator::Impl::superseded_by(const std::string& other) {
  if (!generations)
    return log_warning(
        "launch: the name of job '{}' in etcd is held by {}: this job cannot be found there now",
        etcd->job, other);
  log_warning("launch: the name of job '{}' in etcd is held by {}; {} gives up", etcd->job, other,
              server->endpoint().describe());
  superseded = !stands_by;
  give_up();
}

// Closes all connections. A coordinator that stood by stands by again.
void Coordinator::Impl::give_up() {
  for (std::jthread& prober : probers) prober.request_stop();
  for (const auto& each : claims) each->stop();
  if (!generations) return;
  for (const net::ConnectionId connection : generations->all_waiting()) server->close(connection);
  for (const auto& [worker, connection] : connection_of) server->close(connection);
  worker_of.clear();
  connection_of.clear();
  if (stands_by) generations.reset();
}

// Finds the members that died together with the last coordinator, which cannot report them: their
// ports refuse connections. Ends when this coordinator's first generation has formed.
void Coordinator::Impl::look_for_the_missing(const std::stop_token& stop, int generation) {
  for (; !stop.stop_requested(); std::this_thread::sleep_for(kLookAgain)) {
    std::vector<Former::Place> missing;
    {
      const std::lock_guard lock(mutex);
      if (stop.stop_requested() || generations->generation() != generation) return;
      missing = generations->missing();
    }
    for (const auto& [process, standby] : missing) {
      if (stop.stop_requested()) return;
      const net::Reach reach = net::reach(standby, token, Deadline::after(kProbeTimeout));
      if (!net::is_gone(reach)) continue;
      const std::lock_guard lock(mutex);
      if (stop.stop_requested()) return;
      if (const auto worker = generations->worker_of(process))
        generations->lost_worker(
            *worker, {},
            {.process = process,
             .text = fmt::format("worker {} was gone when the coordinator was lost", *worker)},
            Clock::now());
    }
  }
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
                worker_of.clear();  // Connections of the last generation do not count any more.
                connection_of.clear();
                any_step_finished = any_step_finished || membership->any_step_finished();
                membership = std::make_unique<Membership>(options);
                store = KeyValueStore();
              },
          .lose = [this](int worker,
                         const std::string& reason) { deliver(membership->lost(worker, reason)); },
          .interrupt =
              [this] {
                for (const auto& [worker, connection] : connection_of)
                  server->send(connection, regroup_message());
              },
          .rules =
              [this] {
                Former former;
                former.coordinator = server->endpoint();
                former.membership = options;
                return former;
              },
          .is_own = [this](Roster::Process process) { return look && look(process).has_value(); }};
}

// Sends the messages, and ends the waits that can no longer succeed.
void Coordinator::Impl::deliver(const Membership::Messages& messages, net::ConnectionId sender) {
  const auto send = [&](const Membership::Outgoing& outgoing) {
    Json message = outgoing.message;
    message["generation"] = options.generation;
    if (outgoing.to == Membership::Outgoing::kSender) {
      server->send(sender, std::move(message));
      server->close(sender);
    } else if (const auto found = connection_of.find(outgoing.to); found != connection_of.end()) {
      server->send(found->second, std::move(message));
    }
  };
  for (const auto& message : messages) send(message);
  for (const auto& message :
       store.fail_waits([&](int worker) { return membership->nobody_to_wait_for(worker); }))
    send(message);
  changed.notify_all();
}

Coordinator::Coordinator(const net::Endpoint& listen, std::string token, MembershipOptions options,
                         std::optional<RosterOptions> elastic, LookAt look) {
  if (options.workers < 1)
    throw Error(
        ErrorCode::invalid_argument, "launch",
        fmt::format("a job of {} workers cannot run; at least 1 is needed", options.workers));
  impl_ = std::make_unique<Impl>(options, elastic, std::move(look));
  impl_->token = token;
  std::lock_guard lock(impl_->mutex);  // The first events may come before `server` is set.
  impl_->server = std::make_unique<net::ControlServer>(listen, std::move(token), impl_->events());
}

Coordinator::Coordinator(const net::Endpoint& listen, std::string token,
                         std::optional<net::EtcdUrl> etcd) {
  impl_ = std::make_unique<Impl>(MembershipOptions{}, std::nullopt, LookAt());
  impl_->stands_by = true;
  impl_->token = token;
  impl_->etcd = std::move(etcd);
  std::lock_guard lock(impl_->mutex);
  impl_->server = std::make_unique<net::ControlServer>(listen, std::move(token), impl_->events());
}

Coordinator::~Coordinator() {
  impl_->server->stop();  // No more events come. The probers and the claims end after this.
}

net::Endpoint Coordinator::endpoint() const { return impl_->server->endpoint(); }

void Coordinator::publish(const net::EtcdUrl& etcd, Milliseconds patience,
                          const StopAsked& stop_asked) {
  Claim* claim = nullptr;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->etcd = etcd;
    impl_->claim(Claim::For::new_job);
    claim = impl_->claims.back().get();
  }
  claim->wait_until_held(patience, stop_asked);
}

void Coordinator::withdraw(Deadline deadline) {
  std::vector<std::unique_ptr<Claim>> claims;
  {
    std::lock_guard lock(impl_->mutex);
    claims.swap(impl_->claims);
  }
  for (const auto& claim : claims) claim->stop();
  if (!claims.empty()) claims.back()->withdraw(deadline);
}

bool Coordinator::was_superseded() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->superseded;
}

PhaseAt Coordinator::last_phase(int worker) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->membership->last_phase(worker);
}

bool Coordinator::said_goodbye(int worker) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->membership->said_goodbye(worker);
}

bool Coordinator::any_step_finished() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->any_step_finished || impl_->membership->any_step_finished();
}

std::vector<Notice> Coordinator::take_notices() {
  std::lock_guard lock(impl_->mutex);
  return impl_->membership->take_notices();
}

std::optional<LostWorker> Coordinator::first_lost() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->membership->first_lost();
}

void Coordinator::report_lost(int worker, const std::string& reason) {
  std::lock_guard lock(impl_->mutex);
  impl_->look_at_all(Clock::now());
  impl_->deliver(impl_->membership->lost(worker, reason));
}

void Coordinator::report_lost_process(int64_t process, const std::string& reason) {
  std::lock_guard lock(impl_->mutex);
  const auto now = Clock::now();
  if (const auto worker = impl_->generations->worker_of(process)) {
    impl_->look_at_all(now);
    impl_->deliver(impl_->membership->lost(*worker, reason));
    impl_->note_lost_workers(now);
  } else {
    impl_->generations->process_ended(process, reason, now);
  }
}

std::optional<PhaseAt> Coordinator::last_phase_of_process(int64_t process) const {
  std::lock_guard lock(impl_->mutex);
  if (const auto worker = impl_->generations->worker_of(process))
    return impl_->membership->last_phase(*worker);
  return impl_->generations->last_phase(process);
}

void Coordinator::finish() {
  std::lock_guard lock(impl_->mutex);
  if (impl_->generations) impl_->generations->finish(Clock::now());
}

bool Coordinator::is_finishing() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->is_finishing();
}

bool Coordinator::members_were_stopped() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->members_were_stopped;
}

int Coordinator::target() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->target();
}

int Coordinator::resizes() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->resizes();
}

std::vector<LostProcess> Coordinator::take_lost() {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->generations->is_claimed(Clock::now())) return {};
  return impl_->generations->take_lost();
}

bool Coordinator::has_taken_over() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->stands_by && impl_->generations;
}

std::optional<LostMember> Coordinator::lost_member(int64_t process) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->lost_member(process);
}

bool Coordinator::takes_part(int64_t process) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->takes_part(process);
}

bool Coordinator::was_dismissed(int64_t process) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->was_dismissed(process);
}

std::optional<Failure> Coordinator::failure() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->failure();
}

bool Coordinator::wait_until_all_left(Deadline deadline) const {
  std::unique_lock lock(impl_->mutex);
  return impl_->changed.wait_until(lock, deadline.at(), [&] {
    return !impl_->membership->anyone_present() &&
           !(impl_->generations && impl_->generations->anyone_left());
  });
}

}  // namespace trireme::launch
