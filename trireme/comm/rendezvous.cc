#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/base/version.h>
#include <trireme/comm/agent_store.h>
#include <trireme/comm/mpi/mpi_group.h>
#include <trireme/comm/rendezvous.h>
#include <trireme/net/sockets.h>
#include <trireme/watch/stop_request.h>
#include <algorithm>
#include <numeric>
#include <thread>
#include <tuple>

namespace trireme::comm {
namespace {

constexpr Milliseconds kFarewell{2000};
constexpr Milliseconds kTasksEnd{10000};  // Servers may have much to free.
constexpr Milliseconds kTurnedAwayPause{100};
constexpr Milliseconds kLookUp{2000};
// A newcomer waits until the others come to the end of a step, whatever they do now. When the
// coordinator gives up, it says so.
constexpr Milliseconds kUntilWanted{std::chrono::hours(24)};
constexpr int kNodesOfACluster = 2;  // Two or more: their number is not known.

}  // namespace

Rendezvous::Rendezvous(membership::Identity identity, Environment environment,
                       WorldOptions options)
    : identity_(std::move(identity)),
      environment_(std::move(environment)),
      options_(std::move(options)) {
  if (options_.host.empty()) options_.host = environment_.get("TRIREME_HOST").value_or("");
  if (const auto& etcd = identity_.etcd) lookup_.emplace(*etcd);
  if (const auto& elastic = identity_.elastic; elastic && elastic->launcher > 0)
    orphan_watch_.emplace(elastic->launcher, elastic->launcher_grace, elastic->stop_grace);
}

Rendezvous::~Rendezvous() {
  member_.reset();
  if (const auto* at_work = hosted()) at_work->wait_until_all_left(Deadline::after(kFarewell));
}

membership::Coordinator* Rendezvous::hosted() const {
  return standby_ && standby_->has_taken_over() ? standby_.get() : coordinator_.get();
}
bool Rendezvous::is_alone() const {
  return identity_.launcher == membership::Launcher::alone ||
         (identity_.workers == 1 && !identity_.rendezvous && !lookup_);
}
// mpirun hands out no rendezvous, and other launchers may hand out no token.
bool Rendezvous::meets_by_file() const {
  return !identity_.token || identity_.launcher == membership::Launcher::mpirun;
}
std::string Rendezvous::store_key() const {
  return fmt::format("trireme/{}/coordinator", identity_.generation);
}

void Rendezvous::tell_event(monitor::Told told) {
  if (!is_alone()) events_->add(std::move(told));
}

// The version and the terms.
std::map<std::string, std::string> Rendezvous::facts_in_common() const {
  std::map<std::string, std::string> facts = terms_;
  facts["trireme version"] = std::string(version());
  return facts;
}

void Rendezvous::connect(int replicas) {
  if (is_alone()) return;
  const auto [endpoint, token] = find();
  token_ = token;
  membership::MemberOptions options;
  options.timeout = options_.timeout;
  options.heartbeat_interval = options_.heartbeat_interval;
  options.phases = phases_;
  options.events = events_;
  // The coordinator may die after it has told this process its place. Then it does not answer.
  options.throw_if_hopeless = [this] {
    if (arrival_) arrival_->throw_if_closed();
  };
  std::map<std::string, std::string> facts = facts_in_common();
  facts["replicas a worker"] = std::to_string(replicas);
  member_ =
      std::make_shared<membership::Member>(endpoint, token, identity_.worker, identity_.workers,
                                           identity_.generation, std::move(facts), options);
}

void Rendezvous::connect_side_task() {
  const auto [endpoint, token] = find();
  token_ = token;
  membership::MemberOptions options;
  options.timeout = options_.timeout;
  options.heartbeat_interval = options_.heartbeat_interval;
  options.phases = phases_;
  options.events = events_;
  member_ = std::make_shared<membership::Member>(endpoint, token, identity_.task,
                                                 facts_in_common(), options);
}

Rendezvous::Found Rendezvous::find() {
  if (coordinator_) return {coordinator_->endpoint(), token_};
  if (identity_.rendezvous && !identity_.hosts_coordinator && identity_.token)
    return {*identity_.rendezvous, *identity_.token};
  if (lookup_ && identity_.token)
    return {lookup_->wait(*identity_.token, Deadline::after(options_.timeout)), *identity_.token};
  if (identity_.launcher == membership::Launcher::mpirun && !all_on_this_host())
    return meet_by_mpi();
  if (!identity_.token && !all_on_this_host())
    throw Error(ErrorCode::invalid_argument, "comm",
                "the workers are on several hosts and have no common token",
                "the same TRIREME_JOB_TOKEN (or TRIREME_JOB_TOKEN_FILE) on every host");
  return identity_.hosts_coordinator ? host_coordinator() : find_coordinator();
}

net::Endpoint Rendezvous::address_to_listen_at() const {
  if (identity_.rendezvous) {
    // A pod starts some time before its name is in DNS, but it knows its own address.
    const net::Endpoint& told = *identity_.rendezvous;
    const bool is_known = !environment_.get("KUBERNETES_SERVICE_HOST") ||
                          !net::resolve(told, Deadline::after(kLookUp)).empty();
    if (is_known) return told;
    return {net::address_of_this_host(Deadline::after(options_.timeout)), told.port};
  }
  if (!options_.interface.empty()) return {net::address_of_interface(options_.interface), 0};
  if (all_on_this_host()) return {"127.0.0.1", 0};
  if (identity_.agent_store) return {identity_.agent_store->host, 0};  // MASTER_ADDR is this host.
  return {net::address_of_this_host(Deadline::after(options_.timeout)), 0};
}

net::Endpoint Rendezvous::start_coordinator(const std::string& token) {
  membership::MembershipOptions rules;
  rules.workers = identity_.workers;
  rules.generation = identity_.generation;
  rules.join_timeout = options_.timeout;
  if (options_.heartbeat_timeout > Milliseconds(0))
    rules.heartbeat_timeout = options_.heartbeat_timeout;
  rules.straggler.factor = options_.straggler_factor;
  std::optional<membership::RosterOptions> roster;
  if (const auto& elastic = identity_.elastic)
    roster = membership::RosterOptions{.minimum = elastic->minimum,
                                       .maximum = elastic->maximum,
                                       .target = elastic->maximum,
                                       .first_timeout = options_.timeout,
                                       .regroup_timeout = options_.timeout,
                                       .refill_timeout = options_.timeout,
                                       .nodes = kNodesOfACluster,
                                       .unit = elastic->unit};
  try {
    coordinator_ = std::make_unique<membership::Coordinator>(
        address_to_listen_at(), token, rules, roster, membership::LookAt(), identity_.roles);
  } catch (const Error& error) {
    if (!identity_.rendezvous || error.code() != ErrorCode::io) throw;
    throw Error(ErrorCode::io, "comm",
                fmt::format("{} {} has the coordinator of its job, and {}", identity_.role(),
                            identity_.task.index, parts_of(error).what),
                fmt::format("a look at the processes of this host: another one may have the task "
                            "{} {} too, or a programme may hold the address. `trireme doctor` "
                            "prints the task that the environment gives",
                            identity_.role(), identity_.task.index));
  }
  return coordinator_->endpoint();
}

Rendezvous::Found Rendezvous::host_coordinator() {
  const std::string token = identity_.token ? *identity_.token : net::make_token();
  const net::Endpoint endpoint = start_coordinator(token);
  if (meets_by_file())
    token_file_.emplace(membership::TokenFile::create(membership::token_folder(environment_),
                                                      identity_.job_id, {token, endpoint}));
  else if (identity_.agent_store)
    publish(*identity_.agent_store, store_key(), endpoint.describe(),
            Deadline::after(options_.timeout));
  return {endpoint, token};
}

Rendezvous::Found Rendezvous::find_coordinator() {
  const Deadline deadline = Deadline::after(options_.timeout);
  if (meets_by_file()) {
    const auto found = membership::TokenFile::wait(membership::token_folder(environment_),
                                                   identity_.job_id, deadline);
    if (!found)
      throw Error(ErrorCode::timeout, "comm",
                  fmt::format("worker 0 of job '{}' wrote no token within {}", identity_.job_id,
                              format_duration(options_.timeout)),
                  "check whether worker 0 runs on this host, or set "
                  "TRIREME_JOB_TOKEN for all");
    return {found->coordinator, found->token};
  }
  if (identity_.rendezvous) return {*identity_.rendezvous, *identity_.token};
  return {net::parse_endpoint(look_up(*identity_.agent_store, store_key(), deadline)),
          *identity_.token};
}

Rendezvous::Found Rendezvous::meet_by_mpi() {
  Json found;
  if (identity_.hosts_coordinator) {
    const std::string token = identity_.token ? *identity_.token : net::make_token();
    found = {{"coordinator", start_coordinator(token).describe()}, {"token", token}};
  }
  found = Json::parse(
      hand_out_by_mpi(found.dump(), identity_.worker, identity_.workers, options_.timeout));
  return {net::parse_endpoint(found.at("coordinator").get<std::string>()),
          found.at("token").get<std::string>()};
}

std::string Rendezvous::bind_address() const {
  if (!options_.interface.empty()) return net::address_of_interface(options_.interface);
  return member_->peers()[static_cast<size_t>(identity_.worker)].address;
}

const HostMap& Rendezvous::places() {
  if (!places_)
    places_ = find_hosts(*member_, identity_.worker, identity_.workers,
                         place_of_this_process(options_.host), Deadline::after(options_.timeout));
  return *places_;
}

void Rendezvous::set_terms(std::map<std::string, std::string> facts) {
  for (auto& [name, value] : facts) terms_[name] = std::move(value);
  terms_["trireme version"] = version();
  if (const auto& elastic = identity_.elastic) {
    terms_["--elastic"] = fmt::format("{}:{}", elastic->minimum, elastic->maximum);
    if (elastic->unit > 1) terms_["--unit"] = std::to_string(elastic->unit);
  }
}

// The address at which this process of an elastic job would be the coordinator.
net::Endpoint Rendezvous::stand_by(const std::string& address) {
  if (!standby_)
    standby_ = std::make_unique<membership::Coordinator>(net::Endpoint{address, 0},
                                                         *identity_.token, identity_.etcd);
  return standby_->endpoint();
}

// Returns nothing if the job continues without this process.
std::optional<membership::Arrival::Place> Rendezvous::place_after(int64_t step,
                                                                  const std::string& reason) {
  const membership::Arrival::Newcomer self{
      identity_.elastic->process, step, reason,
      [this](const std::string& address) { return stand_by(address); }, terms_};
  for (Deadline patience = Deadline::after(options_.timeout);;) {
    const auto since = std::chrono::steady_clock::now();
    try {
      auto next = std::make_unique<membership::Arrival>(
          identity_.rendezvous.value_or(net::Endpoint{}), *identity_.token, self, former_,
          Deadline::after(options_.timeout), lookup_ ? &*lookup_ : nullptr);
      member_.reset();
      arrival_ = std::move(next);
      return arrival_->wait(Deadline::after(kUntilWanted), [this] {
        // The processes that wait save in the next generation, however few they are.
        if (watch::stop_requested && standby_) standby_->finish();
      });
    } catch (const membership::NoGeneration&) {
      throw;
    } catch (const Error& error) {
      // The process at which it waited is not the coordinator any more, or never became it. etcd
      // names the coordinator.
      if (!lookup_ || error.code() != ErrorCode::peer_lost) throw;
      if (std::chrono::steady_clock::now() - since > options_.timeout)
        patience = Deadline::after(options_.timeout);
      if (patience.expired()) throw;
      log_warning("comm: {}", error.what());
    }
    std::this_thread::sleep_for(kTurnedAwayPause);
  }
}

bool Rendezvous::arrive(int64_t step, const std::string& reason) {
  phases_->set(Phase::connecting, step);
  if (membership::is_cluster(identity_.launcher) && token_.empty()) {
    std::tie(identity_.rendezvous, token_) = find();
    identity_.token = token_;
  }
  const auto place = place_after(step, reason);
  if (!place) return false;
  identity_.rendezvous = arrival_->coordinator();
  former_ = place->former;
  formed_at_ = std::chrono::steady_clock::now();
  identity_.generation = place->generation;
  identity_.worker = place->worker;
  identity_.workers = place->workers;
  first_step_ = place->step;
  steps_ = place->steps;
  has_a_place_ = true;
  if (orphan_watch_) orphan_watch_->note_membership(place->former.roster.nodes > 1);
  places_.reset();
  return true;
}

// A generation of an elastic job tells a worker its place among all workers only.
void Rendezvous::settle() {
  arrival_.reset();
  const HostMap& map = places();
  const std::vector<int>& here = map.hosts[static_cast<size_t>(map.host_of(identity_.worker))];
  identity_.local_workers = static_cast<int>(here.size());
  identity_.local_worker =
      static_cast<int>(std::find(here.begin(), here.end(), identity_.worker) - here.begin());
}

void Rendezvous::tell_first_step(int64_t step, const Json& facts) {
  if (!identity_.elastic || !member_) return;
  if (identity_.worker == 0) member_->tell_first_step(step, facts);
  if (!former_ || former_->history.empty()) return;
  Json& now = former_->history.back();
  now.update(facts);
  now["first_step"] = step;
  now["seconds_to_first_step"] =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - formed_at_).count();
}
Json Rendezvous::generations() const {
  return identity_.elastic && member_ ? member_->generations() : Json::array();
}

// A process that only coordinates ends when all workers have.
bool Rendezvous::finish_wanted() const {
  if (!member_) return false;
  if (identity_.is_worker() || !coordinator_) return member_->finish_wanted();
  if (identity_.elastic) return all_workers_have_ended();
  if (const auto lost = coordinator_->first_lost())
    throw Error(ErrorCode::peer_lost, "comm", lost->describe(), "start the job again");
  if (const auto failure = coordinator_->ended()) throw failure->error();
  for (int worker = 0; worker < identity_.workers; ++worker)
    if (!coordinator_->said_goodbye(worker)) return false;
  return true;
}

// Other processes may get the tasks of lost workers, so these are waited for.
bool Rendezvous::all_workers_have_ended() const {
  if (const auto failure = coordinator_->failure()) throw failure->error();
  if (!coordinator_->other_workers_ended()) {
    alone_since_.reset();
    return false;
  }
  if (coordinator_->is_finishing()) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now - alone_since_.value_or(now) > options_.timeout)
    throw Error(ErrorCode::peer_lost, "comm",
                fmt::format("no worker is there, and none came within {}",
                            format_duration(options_.timeout)),
                "run the job again; it continues from its last checkpoint");
  if (!alone_since_) alone_since_ = now;
  return false;
}

double Rendezvous::coordinator_cpu_seconds() const {
  return member_ && !hosted() ? member_->coordinator_cpu_seconds() : 0;
}

// They hear of the end before the connection closes, and say goodbye.
void Rendezvous::wait_for_side_tasks(const membership::Coordinator& at_work) const {
  const Deadline deadline = Deadline::after(kTasksEnd);
  const auto is_present = [&](int number) { return at_work.task_is_present(number); };
  std::vector<int> tasks(static_cast<size_t>(identity_.roles.count()));
  std::iota(tasks.begin(), tasks.end(), 0);
  while (std::ranges::any_of(tasks, is_present) && !deadline.expired())
    std::this_thread::sleep_for(Milliseconds(5));
}

void Rendezvous::leave() {
  if (member_) member_->leave();
  // A process that hosts the coordinator stays until the others have said goodbye too.
  if (auto* at_work = hosted()) {
    // Side tasks must not take the end of the job for the loss of its coordinator.
    if (at_work->wait_until_all_left(Deadline::after(options_.timeout))) {
      at_work->finish_tasks();
      wait_for_side_tasks(*at_work);
    }
    at_work->withdraw(Deadline::after(kFarewell));
  }
}

}  // namespace trireme::comm
