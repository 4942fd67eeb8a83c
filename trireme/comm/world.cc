#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/base/version.h>
#include <trireme/comm/agent_store.h>
#include <trireme/comm/gloo/gloo_group.h>
#include <trireme/comm/group_maker.h>
#include <trireme/comm/host/host_map.h>
#include <trireme/comm/kin.h>
#include <trireme/comm/mpi/mpi_group.h>
#include <trireme/comm/nccl/nccl_group.h>
#include <trireme/comm/world.h>
#include <trireme/launch/arrival.h>
#include <trireme/launch/coordinator.h>
#include <trireme/launch/lookup.h>
#include <trireme/launch/member.h>
#include <trireme/launch/orphan_watch.h>
#include <trireme/launch/phase_marks.h>
#include <trireme/launch/stop_request.h>
#include <trireme/launch/token_file.h>
#include <algorithm>
#include <numeric>
#include <thread>

namespace trireme {
namespace {

constexpr Milliseconds kFarewell{2000};
constexpr Milliseconds kTurnedAwayPause{100};
// A newcomer waits until the others come to the end of a step, whatever they do now. When the
// coordinator gives up, it says so.
constexpr Milliseconds kUntilWanted{std::chrono::hours(24)};

// The table of this worker's file, if it has one. `all_reduce` by name takes precedence.
plan::CollectiveTable read_table(const WorldOptions& options) {
  return options.table.empty()
             ? plan::CollectiveTable()
             : plan::CollectiveTable::parse(read_file(options.table), options.table);
}

void choose_by_name(plan::CollectiveTable& table, const std::string& all_reduce) {
  if (all_reduce != "auto")
    table.always(plan::Collective::all_reduce, plan::algorithm_from_string(all_reduce));
}

// The backend between hosts is MPI under mpirun, which knows the fabric. Otherwise it is Gloo,
// which is proven at scale, or Trireme's own TCP if both were left out.
std::string carrier_between_hosts(const std::string& backend, const launch::Identity& identity) {
  if (backend != "auto" && backend != "shm") return backend;
  if (identity.elastic) return "tcp";  // Its waits end as soon as a lost worker is known.
  if (identity.launcher == launch::Launcher::mpirun && comm::mpi_is_compiled_in()) return "mpi";
  return comm::gloo_is_compiled_in() ? "gloo" : "tcp";
}

void check_backend(const std::string& backend, const launch::Identity& identity) {
  std::vector<std::string> here{"auto", "threads", "shm", "tcp"};
  if (comm::gloo_is_compiled_in()) here.push_back("gloo");
  if (comm::mpi_is_compiled_in()) here.push_back("mpi");
  if (comm::nccl_is_compiled_in()) here.push_back("nccl");
  if (std::find(here.begin(), here.end(), backend) == here.end())
    throw Error(ErrorCode::unsupported, "comm",
                fmt::format("comm.backend '{}' is not in this build", backend),
                fmt::format("{}", fmt::join(here, ", ")));
  if (backend == "mpi" && identity.workers > 1 && identity.launcher != launch::Launcher::mpirun)
    throw Error(
        ErrorCode::invalid_argument, "comm",
        "comm.backend mpi joins workers that mpirun started, and these were started otherwise",
        "mpirun -n N PROGRAM, or comm.backend: auto");
}

void check_options(const WorldOptions& options, const launch::Identity& identity) {
  check_backend(options.backend, identity);
  const bool can_regroup =
      options.backend == "auto" || options.backend == "shm" || options.backend == "tcp";
  if (identity.elastic && !can_regroup)
    throw Error(
        ErrorCode::unsupported, "comm",
        fmt::format("comm.backend {} in an elastic job: it cannot continue after a peer is lost",
                    options.backend),
        "auto, shm or tcp");
  if (options.timeout <= Milliseconds(0))
    throw Error(ErrorCode::invalid_argument, "comm",
                fmt::format("comm.timeout of {} ms", options.timeout.count()),
                "a time above 0, such as 60s");
}

}  // namespace

struct World::Impl {
  WorldOptions options;
  launch::Identity identity;
  Environment environment;
  // The coordinator, if this process is the rendezvous (rank 0 of torchrun and mpirun).
  std::unique_ptr<launch::Coordinator> coordinator;
  // These five are for elastic jobs. `standby` takes over if the job's coordinator is lost.
  std::optional<launch::OrphanWatch> orphan_watch;
  std::unique_ptr<launch::Coordinator> standby;
  // The arrival lives until its generation is joined, or until the next arrival.
  std::unique_ptr<launch::Arrival> arrival;
  std::optional<launch::Former> former;  // This generation, for the next coordinator.
  std::chrono::steady_clock::time_point formed_at;
  std::optional<launch::TokenFile> token_file;
  std::shared_ptr<launch::PhasePage> phases = launch::PhasePage::of_this_process();
  std::shared_ptr<launch::Member> member;  // Empty while unconnected, and when alone.
  bool connected = false;
  bool placed = false;      // An elastic job has given this process its place in a generation.
  int64_t first_step = -1;  // The number of steps committed before this generation.
  int replicas = 1;
  std::map<std::string, std::string> terms;  // The terms of an elastic job.
  int groups_made = 0;
  std::shared_ptr<comm::Kin> kin = std::make_shared<comm::Kin>();  // This generation's groups.
  std::optional<comm::HostMap> places;                             // The workers by host.
  std::optional<comm::HostMap> hosts;                              // The workers by shared memory.
  std::string job_token;                                           // Empty before the connection.
  plan::CollectiveTable table;

  std::optional<launch::CoordinatorLookup> lookup;  // The coordinator's address in etcd.

  // A process that hosts the coordinator stays until the others have heard of its end, also after
  // a failure.
  ~Impl() {
    member.reset();
    if (const auto* at_work = hosted()) at_work->wait_until_all_left(Deadline::after(kFarewell));
  }
  launch::Coordinator* hosted() const {
    return standby && standby->has_taken_over() ? standby.get() : coordinator.get();
  }
  // The address at which this process of an elastic job would be the coordinator.
  net::Endpoint stand_by(const std::string& address) {
    if (!standby)
      standby = std::make_unique<launch::Coordinator>(net::Endpoint{address, 0}, *identity.token,
                                                      identity.etcd);
    return standby->endpoint();
  }
  std::optional<launch::Arrival::Place> arrive(int64_t step, const std::string& reason);

  // Returns the coordinator's address and the job's token. Starts the coordinator if this process
  // has to.
  std::pair<net::Endpoint, std::string> rendezvous();
  std::pair<net::Endpoint, std::string> host_coordinator();
  std::pair<net::Endpoint, std::string> find_coordinator();
  std::pair<net::Endpoint, std::string> meet_by_mpi();
  net::Endpoint start_coordinator(const std::string& token);
  bool all_on_this_host() const { return identity.local_workers == identity.workers; }
  // mpirun hands out no rendezvous, and other launchers may hand out no token.
  bool meets_by_file() const {
    return !identity.token || identity.launcher == launch::Launcher::mpirun;
  }
  std::string store_key() const {
    return fmt::format("trireme/{}/coordinator", identity.generation);
  }
  std::string bind_address() const;
  const comm::HostMap& map_of_places();
  const comm::HostMap& host_map();
  void find_local_workers();
  std::vector<std::shared_ptr<Group>> make(const std::vector<int>& ranks, const std::string& name);
  int replicas_for(int wanted) const;
  void connect_for_groups(World& world, int replicas);
  void agree_on_table();
};

std::pair<net::Endpoint, std::string> World::Impl::rendezvous() {
  if (identity.rendezvous && !identity.hosts_coordinator && identity.token)
    return {*identity.rendezvous, *identity.token};
  if (lookup && identity.token)
    return {lookup->wait(*identity.token, Deadline::after(options.timeout)), *identity.token};
  if (identity.launcher == launch::Launcher::mpirun && !all_on_this_host()) return meet_by_mpi();
  if (!identity.token && !all_on_this_host())
    throw Error(ErrorCode::invalid_argument, "comm",
                "the workers are on several hosts and have no common token",
                "the same TRIREME_JOB_TOKEN (or TRIREME_JOB_TOKEN_FILE) on every host");
  return identity.hosts_coordinator ? host_coordinator() : find_coordinator();
}

net::Endpoint World::Impl::start_coordinator(const std::string& token) {
  net::Endpoint listen{"127.0.0.1", 0};
  if (identity.rendezvous)
    listen = *identity.rendezvous;
  else if (!options.interface.empty())
    listen.host = net::address_of_interface(options.interface);
  else if (identity.agent_store && !all_on_this_host())
    listen.host = identity.agent_store->host;  // MASTER_ADDR is this host.
  else if (!all_on_this_host())
    listen.host = net::address_of_this_host(Deadline::after(options.timeout));
  launch::MembershipOptions rules;
  rules.workers = identity.workers;
  rules.generation = identity.generation;
  rules.join_timeout = options.timeout;
  rules.heartbeat_timeout = options.heartbeat_timeout;
  rules.straggler.factor = options.straggler_factor;
  coordinator = std::make_unique<launch::Coordinator>(listen, token, rules);
  return coordinator->endpoint();
}

std::pair<net::Endpoint, std::string> World::Impl::host_coordinator() {
  const std::string token = identity.token ? *identity.token : net::make_token();
  const net::Endpoint endpoint = start_coordinator(token);
  if (meets_by_file())
    token_file.emplace(launch::TokenFile::create(launch::token_folder(environment),
                                                 identity.job_id, {token, endpoint}));
  else if (identity.agent_store)
    comm::publish(*identity.agent_store, store_key(), endpoint.describe(),
                  Deadline::after(options.timeout));
  return {endpoint, token};
}

std::pair<net::Endpoint, std::string> World::Impl::find_coordinator() {
  const Deadline deadline = Deadline::after(options.timeout);
  if (meets_by_file()) {
    const auto found =
        launch::TokenFile::wait(launch::token_folder(environment), identity.job_id, deadline);
    if (!found)
      throw Error(ErrorCode::timeout, "comm",
                  fmt::format("worker 0 of job '{}' wrote no token within {}", identity.job_id,
                              format_duration(options.timeout)),
                  "check whether worker 0 runs on this host, or set TRIREME_JOB_TOKEN for all");
    return {found->coordinator, found->token};
  }
  if (identity.rendezvous) return {*identity.rendezvous, *identity.token};
  return {net::parse_endpoint(comm::look_up(*identity.agent_store, store_key(), deadline)),
          *identity.token};
}

std::pair<net::Endpoint, std::string> World::Impl::meet_by_mpi() {
  Json found;
  if (identity.hosts_coordinator) {
    const std::string token = identity.token ? *identity.token : net::make_token();
    found = {{"coordinator", start_coordinator(token).describe()}, {"token", token}};
  }
  found = Json::parse(
      comm::hand_out_by_mpi(found.dump(), identity.worker, identity.workers, options.timeout));
  return {net::parse_endpoint(found.at("coordinator").get<std::string>()),
          found.at("token").get<std::string>()};
}

// The address by which the other processes reach this one: that of the named interface, or the one
// towards the rendezvous.
std::string World::Impl::bind_address() const {
  if (!options.interface.empty()) return net::address_of_interface(options.interface);
  return member->peers()[identity.worker].address;
}

const comm::HostMap& World::Impl::map_of_places() {
  if (!places)
    places = comm::find_hosts(*member, identity.worker, identity.workers,
                              comm::place_of_this_process(options.host),
                              Deadline::after(options.timeout));
  return *places;
}

// A generation of an elastic job tells a worker its place among all workers only.
void World::Impl::find_local_workers() {
  const comm::HostMap& map = map_of_places();
  const std::vector<int>& here = map.hosts[static_cast<size_t>(map.host_of(identity.worker))];
  identity.local_workers = static_cast<int>(here.size());
  identity.local_worker =
      static_cast<int>(std::find(here.begin(), here.end(), identity.worker) - here.begin());
}

const comm::HostMap& World::Impl::host_map() {
  if (!hosts) {
    const bool shares = options.backend == "auto" || options.backend == "shm";
    hosts = shares ? map_of_places() : comm::each_alone(identity.workers);
  }
  if (options.backend == "shm" && !hosts->one_host())
    throw Error(
        ErrorCode::unsupported, "comm",
        fmt::format("comm.backend shm joins the processes of one host, and these are on {}",
                    hosts->hosts.size()),
        "comm.backend: auto, which takes shared memory inside each host");
  return *hosts;
}

// The groups of some ranks, or of all of them, by replica of this worker.
std::vector<std::shared_ptr<Group>> World::Impl::make(const std::vector<int>& ranks,
                                                      const std::string& name) {
  comm::GroupSite site{.member = member,
                       .worker = identity.worker,
                       .replicas = replicas,
                       .local_worker = identity.local_worker,
                       .hosts = comm::each_alone(identity.workers),
                       .table = table,
                       .timeout = options.timeout};
  if (identity.workers > 1) {
    site.hosts = host_map();
    site.carrier = carrier_between_hosts(options.backend, identity);
    site.address = bind_address();
    site.token = job_token;
  }
  std::vector<std::shared_ptr<Group>> groups = comm::make_groups(site, ranks, name);
  for (size_t replica = 0; replica < groups.size(); ++replica) {
    const auto& group = groups[replica];
    if (!group) continue;
    const int rank = identity.worker * replicas + static_cast<int>(replica);
    group->join(kin, rank, static_cast<int>(ranks.size()) < identity.workers * replicas);
    kin->add(group, rank);
  }
  return groups;
}

// The number of replicas that the world has, or will have once it is connected.
int World::Impl::replicas_for(int wanted) const {
  return wanted > 0 ? wanted : connected ? replicas : 1;
}

// All ranks take rank 0's table, so that they choose alike whatever files they have.
void World::Impl::agree_on_table() {
  const std::string key = "collective-table";
  if (identity.worker == 0) return member->set(key, table.to_text());
  table = plan::CollectiveTable::parse(member->get(key, Deadline::after(options.timeout)),
                                       "the table of worker 0");
  choose_by_name(table, options.all_reduce);
}

World::World(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
World::~World() = default;
World::World(World&&) noexcept = default;
World& World::operator=(World&&) noexcept = default;

World World::join(WorldOptions options) {
  return join(std::move(options), Environment::of_process());
}

World World::join(WorldOptions options, const Environment& environment) {
  auto impl = std::make_unique<Impl>();
  impl->identity = launch::resolve_identity(environment);
  check_options(options, impl->identity);
  impl->table = read_table(options);
  choose_by_name(impl->table, options.all_reduce);
  impl->environment = environment;
  impl->options = std::move(options);
  if (impl->options.host.empty())
    impl->options.host = environment.get("TRIREME_HOST").value_or("");
  if (const auto& etcd = impl->identity.etcd) impl->lookup.emplace(*etcd);
  if (const auto& elastic = impl->identity.elastic; elastic && elastic->launcher > 0)
    impl->orphan_watch.emplace(elastic->launcher, elastic->launcher_grace, elastic->stop_grace);
  if (impl->identity.workers > 1) set_process_rank(impl->identity.worker, impl->identity.workers);
  return World(std::move(impl));
}

int World::worker() const { return impl_->identity.worker; }
int World::workers() const { return impl_->identity.workers; }
const launch::Identity& World::identity() const { return impl_->identity; }
const WorldOptions& World::options() const { return impl_->options; }

void World::connect(int replicas) {
  if (replicas < 1)
    throw Error(ErrorCode::invalid_argument, "comm", fmt::format("{} replicas a worker", replicas),
                "at least 1");
  if (impl_->connected) {
    if (replicas != impl_->replicas)
      throw Error(ErrorCode::invalid_argument, "comm",
                  fmt::format("this world has {} replicas a worker, {} are asked for now",
                              impl_->replicas, replicas),
                  "the same number for every engine of a programme");
    return;
  }
  if (is_elastic() && !impl_->placed && !regroup(-1, ""))
    throw Error(ErrorCode::aborted, "comm", "the job has as many workers as it wants",
                "trireme scale N, to take in more workers");
  if (impl_->connected) return;  // The regrouping has connected it.
  const bool alone = impl_->identity.launcher == launch::Launcher::alone ||
                     (workers() == 1 && !impl_->identity.rendezvous && !impl_->lookup);
  if (!alone) {
    const auto [endpoint, token] = impl_->rendezvous();
    impl_->job_token = token;
    launch::MemberOptions options;
    options.timeout = impl_->options.timeout;
    options.heartbeat_interval = impl_->options.heartbeat_interval;
    options.phases = impl_->phases;
    // The coordinator may die after it has told this process its place. Then it does not answer.
    options.throw_if_hopeless = [impl = impl_.get()] {
      if (impl->arrival) impl->arrival->throw_if_closed();
    };
    impl_->member = std::make_shared<launch::Member>(
        endpoint, token, worker(), workers(), impl_->identity.generation,
        std::map<std::string, std::string>{{"trireme version", std::string(version())},
                                           {"replicas a worker", std::to_string(replicas)}},
        options);
    if (workers() > 1) impl_->agree_on_table();
  }
  impl_->connected = true;
  impl_->replicas = replicas;
  const int world_size = workers() * replicas;
  if (world_size > 1)
    set_process_rank(worker() * replicas,
                     world_size);  // Its first replica speaks for the process.
}

void World::set_terms(std::map<std::string, std::string> facts) {
  impl_->terms = std::move(facts);
  impl_->terms["trireme version"] = version();
  if (const auto& elastic = impl_->identity.elastic)
    impl_->terms["--elastic"] = fmt::format("{}:{}", elastic->minimum, elastic->maximum);
}
bool World::is_elastic() const { return impl_->identity.elastic.has_value(); }
bool World::regroup_wanted() const { return impl_->member && impl_->member->regroup_wanted(); }
bool World::lost_a_worker() const { return impl_->member && impl_->member->is_lost(); }
int64_t World::step_of_generation() const { return impl_->first_step; }

// Returns nothing if the job continues without this process.
std::optional<launch::Arrival::Place> World::Impl::arrive(int64_t step,
                                                          const std::string& reason) {
  const launch::Arrival::Newcomer self{
      identity.elastic->process, step, reason,
      [this](const std::string& address) { return stand_by(address); }, terms};
  for (Deadline patience = Deadline::after(options.timeout);;) {
    const auto since = std::chrono::steady_clock::now();
    try {
      auto next = std::make_unique<launch::Arrival>(
          identity.rendezvous.value_or(net::Endpoint{}), *identity.token, self, former,
          Deadline::after(options.timeout), lookup ? &*lookup : nullptr);
      member.reset();
      arrival = std::move(next);
      return arrival->wait(Deadline::after(kUntilWanted), [this] {
        // The processes that wait save in the next generation, however few they are.
        if (launch::stop_requested && standby) standby->finish();
      });
    } catch (const launch::NoGeneration&) {
      throw;
    } catch (const Error& error) {
      // The process at which it waited is not the coordinator any more, or never became it. etcd
      // names the coordinator.
      if (!lookup || error.code() != ErrorCode::peer_lost) throw;
      if (std::chrono::steady_clock::now() - since > options.timeout)
        patience = Deadline::after(options.timeout);
      if (patience.expired()) throw;
      log_warning("comm: {}", error.what());
    }
    std::this_thread::sleep_for(kTurnedAwayPause);
  }
}

bool World::regroup(int64_t step, const std::string& reason) {
  launch::Identity& identity = impl_->identity;
  impl_->phases->set(Phase::connecting, step);
  const auto place = impl_->arrive(step, reason);
  if (!place) return false;
  identity.rendezvous = impl_->arrival->coordinator();
  impl_->former = place->former;
  impl_->formed_at = std::chrono::steady_clock::now();
  identity.generation = place->generation;
  identity.worker = place->worker;
  identity.workers = place->workers;
  impl_->first_step = place->step;
  impl_->placed = true;
  if (impl_->orphan_watch) impl_->orphan_watch->note_membership(place->former.roster.nodes > 1);
  impl_->connected = false;
  impl_->places.reset();
  impl_->hosts.reset();
  impl_->groups_made = 0;
  impl_->kin = std::make_shared<comm::Kin>();
  connect(impl_->replicas);
  impl_->arrival.reset();
  impl_->find_local_workers();
  return true;
}

void World::tell_first_step(int64_t step, const Json& facts) {
  if (!is_elastic() || !impl_->member) return;
  if (worker() == 0) impl_->member->tell_first_step(step, facts);
  if (!impl_->former || impl_->former->history.empty()) return;
  Json& now = impl_->former->history.back();
  now.update(facts);
  now["first_step"] = step;
  now["seconds_to_first_step"] =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - impl_->formed_at).count();
}
Json World::generations() {
  return is_elastic() && impl_->member ? impl_->member->generations() : Json::array();
}

void World::agree(const std::string& what, const std::map<std::string, std::string>& facts) {
  connect(impl_->replicas);
  if (impl_->member && workers() > 1) impl_->member->agree(what, facts);
}

void World::set_table(plan::CollectiveTable table) { impl_->table = std::move(table); }

void World::Impl::connect_for_groups(World& world, int wanted) {
  world.connect(wanted);
  // The loop of a programme of its own marks its collectives here.
  if (wanted == 1) launch::mark_this_thread(phases);
  if (identity.workers > 1 && options.backend == "threads")
    throw Error(ErrorCode::unsupported, "comm",
                fmt::format("comm.backend threads cannot join {} processes", identity.workers),
                "comm.backend: auto, shm or gloo");
}

std::vector<std::shared_ptr<Group>> World::make_groups(int replicas) {
  impl_->connect_for_groups(*this, replicas);
  std::vector<int> all(static_cast<size_t>(workers() * replicas));
  std::iota(all.begin(), all.end(), 0);
  return impl_->make(all, fmt::format("group-{}", impl_->groups_made++));
}

std::vector<std::shared_ptr<Group>> World::make_group(const std::vector<int>& ranks,
                                                      int replicas) {
  const int each = impl_->replicas_for(replicas);
  // The members of an elastic job are known once it is connected.
  if (is_elastic()) connect(each);
  plan::check_group(ranks, workers() * each);
  impl_->connect_for_groups(*this, each);
  const std::string name = fmt::format("group-{}", impl_->groups_made++);
  agree(name, {{"ranks", fmt::format("{}", fmt::join(ranks, ", "))}});
  return impl_->make(ranks, name);
}

std::vector<MeshRank> World::mesh(const plan::Mesh& mesh, int replicas) {
  const int each = impl_->replicas_for(replicas);
  if (is_elastic()) connect(each);
  plan::check_world(mesh, workers() * each);
  impl_->connect_for_groups(*this, each);
  const std::string name = fmt::format("group-{}", impl_->groups_made++);
  agree(name, {{"mesh", mesh.to_json().dump()}});
  std::vector<MeshRank> places(static_cast<size_t>(each));
  for (int replica = 0; replica < each; ++replica) {
    MeshRank& place = places[static_cast<size_t>(replica)];
    place.rank = worker() * each + replica;
    place.coordinates = mesh.coordinates_of(place.rank);
  }
  // All workers make the groups in the same order, so that none waits for another in a circle.
  for (const plan::MeshAxis& axis : mesh.axes()) {
    int number = 0;
    for (const std::vector<int>& ranks : mesh.groups_along(axis.name)) {
      const auto made = impl_->make(ranks, fmt::format("{}-{}-{}", name, axis.name, number++));
      for (size_t replica = 0; replica < made.size(); ++replica)
        if (made[replica]) places[replica].groups[axis.name] = made[replica];
    }
  }
  return places;
}

const std::shared_ptr<Group>& MeshRank::along(std::string_view axis) const {
  const auto found = groups.find(axis);
  if (found != groups.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, group] : groups) names.push_back(name);
  throw Error(ErrorCode::invalid_argument, "comm", fmt::format("the mesh has no axis '{}'", axis),
              fmt::format("one of {}", fmt::join(names, ", ")));
}

void World::set_phase(Phase phase, int64_t step) {
  impl_->phases->set(phase, step);
  launch::mark_this_thread(impl_->phases);
}

std::shared_ptr<void> World::mark_save(int64_t step) {
  impl_->phases->begin_save(step);
  return {nullptr, [page = impl_->phases](void*) { page->end_save(); }};
}

Json World::times() {
  if (impl_->member) return impl_->member->times();
  Json own = Json::array();
  if (const auto now = impl_->phases->read(); now && now->times.steps > 0)
    own.push_back(launch::to_json(launch::mean_of(now->times), rank()));
  return {{"phases", own}, {"stragglers", Json::array()}};
}

double World::coordinator_cpu_seconds() {
  const bool elsewhere = impl_->member && !impl_->hosted();
  return elsewhere ? impl_->member->coordinator_cpu_seconds() : 0;
}

void World::leave() {
  comm::leave_mpi(Deadline::after(impl_->options.timeout));
  if (impl_->member) impl_->member->leave();
  // A process that hosts the coordinator stays until the others have said goodbye too.
  if (auto* hosted = impl_->hosted()) {
    hosted->wait_until_all_left(Deadline::after(impl_->options.timeout));
    hosted->withdraw(Deadline::after(kFarewell));
  }
}

}  // namespace trireme
