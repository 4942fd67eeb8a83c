#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/Type.h>

#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <trireme/comm/at_the_end.h>
#include <trireme/comm/first_numbers.h>
#include <trireme/comm/group_maker.h>
#include <trireme/comm/kin.h>
#include <trireme/comm/mpi/mpi_group.h>
#include <trireme/comm/rendezvous.h>
#include <trireme/comm/world.h>
#include <trireme/net/message.h>
#include <trireme/plan/data_plan.h>
#include <trireme/watch/phase_marks.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <typeinfo>
#include <utility>

namespace trireme {

// The groups of the workers that met at the rendezvous.
struct World::Impl {
  Impl(membership::Identity identity, const Environment& environment, WorldOptions options)
      : meeting(std::move(identity), environment, std::move(options)),
        table(comm::table_of(meeting.options())) {}

  comm::Rendezvous meeting;
  plan::CollectiveTable table;
  bool connected = false;
  bool has_left = false;
  int replicas = 1;
  // The groups of this generation.
  int groups_made = 0;
  std::shared_ptr<comm::Kin> kin = std::make_shared<comm::Kin>();
  std::optional<comm::HostMap> hosts;  // The workers by shared memory.
  std::shared_ptr<Group> loop_group;
  std::shared_ptr<World::OwnLoop> own_loop = std::make_shared<World::OwnLoop>();

  const membership::Identity& identity() const { return meeting.identity(); }
  const WorldOptions& options() const { return meeting.options(); }
  void begin_generation();
  void agree_on_table();
  int replicas_for(int wanted) const;
  const comm::HostMap& host_map();
  std::string next_name() { return fmt::format("group-{}", groups_made++); }
  std::vector<std::shared_ptr<Group>> make(const std::vector<int>& ranks, const std::string& name);
  void connect_for_groups(World& world, int replicas);
  bool is_lost() const { return meeting.member() && meeting.member()->is_lost(); }
  void leave_at_the_end(World& world) noexcept;
  membership::Member& connected_member(const char* what) const;
};

void World::Impl::begin_generation() {
  connected = false;
  groups_made = 0;
  kin = std::make_shared<comm::Kin>();
  loop_group.reset();
  hosts.reset();
}

// All ranks take rank 0's table, so that they choose alike whatever files they have.
void World::Impl::agree_on_table() {
  const std::string key = "collective-table";
  membership::Member& member = *meeting.member();
  if (identity().worker == 0) return member.set(key, table.to_text());
  table = plan::CollectiveTable::parse(member.get(key, Deadline::after(options().timeout)),
                                       "the table of worker 0");
  comm::choose_by_name(table, options().all_reduce);
}

// The number of replicas that the world has, or will have once it is connected.
int World::Impl::replicas_for(int wanted) const {
  return wanted > 0 ? wanted : connected ? replicas : 1;
}

const comm::HostMap& World::Impl::host_map() {
  if (!hosts) {
    const bool shares = options().backend == "auto" || options().backend == "shm";
    hosts = shares ? meeting.places() : comm::each_alone(identity().workers);
  }
  if (options().backend == "shm" && !hosts->one_host())
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
  const membership::Identity& self = identity();
  comm::GroupSite site{.member = meeting.member(),
                       .worker = self.worker,
                       .replicas = replicas,
                       .local_worker = self.local_worker,
                       .hosts = comm::each_alone(self.workers),
                       .table = table,
                       .timeout = options().timeout};
  if (self.workers > 1) {
    site.hosts = host_map();
    site.carrier = comm::carrier_between_hosts(options().backend, self);
    site.address = meeting.bind_address();
    site.token = meeting.token();
  }
  std::vector<std::shared_ptr<Group>> groups = comm::make_groups(site, ranks, name);
  for (size_t replica = 0; replica < groups.size(); ++replica) {
    const auto& group = groups[replica];
    if (!group) continue;
    const int rank = self.worker * replicas + static_cast<int>(replica);
    group->join(kin, rank, static_cast<int>(ranks.size()) < self.workers * replicas);
    kin->add(group, rank);
  }
  return groups;
}

membership::Member& World::Impl::connected_member(const char* what) const {
  if (!meeting.member())
    throw Error(
        ErrorCode::invalid_argument, "comm",
        fmt::format("{}: this process is not connected to a job", what),
        "World::connect() first, in a job that trireme launch, torchrun or mpirun started");
  return *meeting.member();
}

void World::Impl::connect_for_groups(World& world, int wanted) {
  world.require_worker("a group");
  world.connect(wanted);
  // The loop of a programme of its own marks its collectives here.
  if (wanted == 1) watch::mark_this_thread(meeting.phases());
  if (identity().workers > 1 && options().backend == "threads")
    throw Error(ErrorCode::unsupported, "comm",
                fmt::format("comm.backend threads cannot join {} processes", identity().workers),
                "comm.backend: auto, shm or gloo");
}

World::World(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->own_loop->world = this;
}

namespace {

std::terminate_handler handler_before = nullptr;

[[noreturn]] void end_by(const std::string& what, int code) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::fflush(nullptr);
  std::_Exit(code);
}

// A programme that catches nothing ends with the exit code of the error (docs/errors.md), as if
// it had caught it, and without a core file. Another exception would be thrown again if the job
// were started again, as an abort() asks for.
[[noreturn]] void end_with_code_of_error() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const Error& error) {
    end_by(error.what(), exit_code_of(error));
  } catch (const std::exception& error) {
    const std::string kind = c10::demangle(typeid(error).name());
    end_by(fmt::format("trireme: nothing caught {}: {}", kind, parts_of(error).what), kExitFailed);
  } catch (...) {
  }
  if (handler_before) handler_before();
  std::abort();
}

}  // namespace

// The programme of a loop as it stands comes to its end. Parameters that are not alike end the
// process. Another error is that of ranks that have not come here: they name this one, and its
// own exit code counts.
void World::Impl::leave_at_the_end(World& world) noexcept {
  if (own_loop->engines == 0 || !connected || has_left || is_lost()) return;
  try {
    world.leave();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::invalid_argument && !is_lost())
      end_by(error.what(), exit_code_of(error));
    std::fprintf(stderr, "%s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trireme: no goodbye: %s\n", error.what());
  }
}

World::~World() {
  if (!impl_) return;
  if (std::uncaught_exceptions() == 0) impl_->leave_at_the_end(*this);
  impl_->own_loop->world = nullptr;  // Engines and loaders of a loop may outlive the World.
}
World::World(World&& other) noexcept : impl_(std::move(other.impl_)) {
  if (impl_) impl_->own_loop->world = this;
}
World& World::operator=(World&& other) noexcept {
  if (impl_) impl_->own_loop->world = nullptr;
  impl_ = std::move(other.impl_);
  if (impl_) impl_->own_loop->world = this;
  return *this;
}

World World::join(WorldOptions options) {
  static std::once_flag installed;  // A handler that was set since may call this one.
  std::call_once(installed, [] { handler_before = std::set_terminate(end_with_code_of_error); });
  World world = join(std::move(options), Environment::of_process());
  comm::seed_by_job(world.identity());
  return world;
}

World World::join(WorldOptions options, const Environment& environment) {
  membership::Identity identity = membership::resolve_identity(environment);
  comm::check(options, identity);
  World world(std::make_unique<Impl>(std::move(identity), environment, std::move(options)));
  if (world.workers() > 1 && world.identity().is_worker())
    set_process_rank(world.worker(), world.workers());
  return world;
}

int World::worker() const { return impl_->identity().worker; }
int World::workers() const { return impl_->identity().workers; }
const membership::Identity& World::identity() const { return impl_->identity(); }
const WorldOptions& World::options() const { return impl_->options(); }

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
  if (!identity().is_worker()) {
    impl_->meeting.connect_side_task();
    impl_->connected = true;
    return;
  }
  if (is_elastic() && !impl_->meeting.has_a_place() && !regroup(-1, ""))
    throw Error(ErrorCode::aborted, "comm", "the job has as many workers as it wants",
                "trireme scale N, to take in more workers");
  if (impl_->connected) return;  // The regrouping has connected it.
  impl_->meeting.connect(replicas);
  if (impl_->meeting.member() && workers() > 1) impl_->agree_on_table();
  impl_->connected = true;
  impl_->replicas = replicas;
  const int world_size = workers() * replicas;
  if (world_size > 1)
    set_process_rank(worker() * replicas,
                     world_size);  // Its first replica speaks for the process.
}

void World::require_worker(const char* what) const {
  if (!identity().is_worker())
    throw Error(ErrorCode::invalid_argument, "comm",
                fmt::format("{}: {} is no worker and has no rank", what, task().name()),
                "call it in the programme's workers only: World::task() tells the role");
}

const membership::Task& World::task() const { return identity().task; }
std::vector<membership::TaskPeer> World::peers(const std::string& role) const {
  return impl_->connected_member("peers()").task_peers(role);
}
std::vector<membership::TaskPeer> World::wait_for(const std::string& role,
                                                  Deadline deadline) const {
  return impl_->connected_member("wait_for()").wait_for(role, deadline);
}
std::vector<membership::LostTask> World::lost_tasks() const {
  const auto& member = impl_->meeting.member();
  return member ? member->lost_tasks() : std::vector<membership::LostTask>{};
}
bool World::finish_wanted() const { return impl_->meeting.finish_wanted(); }
void World::set_value(const std::string& key, const std::string& value) {
  impl_->connected_member("set_value()").set(key, value);
}
std::string World::get_value(const std::string& key, Deadline deadline) {
  return impl_->connected_member("get_value()").get(key, deadline);
}
std::optional<std::string> World::find_value(const std::string& key) {
  return impl_->connected_member("find_value()").find(key);
}

const std::string& World::token() const {
  impl_->connected_member("token()");
  return impl_->meeting.token();
}
std::string World::own_address() const {
  impl_->connected_member("own_address()");
  if (identity().is_worker()) return impl_->meeting.bind_address();
  if (!options().interface.empty()) return net::address_of_interface(options().interface);
  for (const membership::TaskPeer& peer : peers(task().role))
    if (peer.task == task()) return peer.address;
  throw Error(ErrorCode::internal, "comm", task().name() + " is not in the job's table of tasks");
}

void World::set_terms(std::map<std::string, std::string> facts) {
  impl_->meeting.set_terms(std::move(facts));
}
bool World::is_elastic() const { return impl_->identity().elastic.has_value(); }
bool World::regroup_wanted() const {
  const auto& member = impl_->meeting.member();
  return member && member->regroup_wanted();
}
bool World::lost_a_worker() const {
  const auto& member = impl_->meeting.member();
  return member && member->lost();
}
int64_t World::step_of_generation() const { return impl_->meeting.first_step(); }
std::vector<int64_t> World::steps_of_generation() const { return impl_->meeting.steps(); }

bool World::regroup(int64_t step, const std::string& reason) {
  if (!impl_->meeting.arrive(step, reason)) return false;
  impl_->begin_generation();
  connect(impl_->replicas);
  impl_->meeting.settle();
  return true;
}

void World::tell_first_step(int64_t step, const Json& facts) {
  impl_->meeting.tell_first_step(step, facts);
}
void World::tell_event(monitor::Told told) { impl_->meeting.tell_event(std::move(told)); }
void World::send_events() {
  if (const auto& member = impl_->meeting.member()) member->send_events();
}
Json World::generations() { return impl_->meeting.generations(); }

void World::agree(const std::string& what, const std::map<std::string, std::string>& facts) {
  require_worker("agree()");
  connect(impl_->replicas);
  if (impl_->meeting.member() && workers() > 1) impl_->meeting.member()->agree(what, facts);
}

void World::set_table(plan::CollectiveTable table) { impl_->table = std::move(table); }

std::vector<std::shared_ptr<Group>> World::make_groups(int replicas) {
  impl_->connect_for_groups(*this, replicas);
  std::vector<int> all(static_cast<size_t>(workers() * replicas));
  std::iota(all.begin(), all.end(), 0);
  const watch::CollectiveMark waits_for_all(watch::kAgreement);
  return impl_->make(all, impl_->next_name());
}

std::vector<std::shared_ptr<Group>> World::make_group(const std::vector<int>& ranks,
                                                      int replicas) {
  const int each = impl_->replicas_for(replicas);
  // The members of an elastic job are known once it is connected.
  if (is_elastic()) connect(each);
  plan::check_group(ranks, workers() * each);
  impl_->connect_for_groups(*this, each);
  const std::string name = impl_->next_name();
  agree(name, {{"ranks", fmt::format("{}", fmt::join(ranks, ", "))}});
  return impl_->make(ranks, name);
}

std::vector<MeshRank> World::mesh(const plan::Mesh& mesh, int replicas) {
  const int each = impl_->replicas_for(replicas);
  if (is_elastic()) connect(each);
  plan::check_world(mesh, workers() * each);
  impl_->connect_for_groups(*this, each);
  const std::string name = impl_->next_name();
  agree(name, {{"mesh", mesh.to_json().dump()}});
  std::vector<MeshRank> places(static_cast<size_t>(each));
  for (int replica = 0; replica < each; ++replica) {
    MeshRank& place = places[static_cast<size_t>(replica)];
    place.rank = worker() * each + replica;
    place.coordinates = mesh.coordinates_of(place.rank);
    place.shape = mesh;
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
  impl_->meeting.phases()->set(phase, step);
  watch::mark_this_thread(impl_->meeting.phases());
}

std::shared_ptr<void> World::mark_save(int64_t step) {
  const auto page = impl_->meeting.phases();
  page->begin_save(step);
  return {nullptr, [page](void*) { page->end_save(); }};
}

Json World::times() {
  if (const auto& member = impl_->meeting.member()) return member->times();
  Json own = Json::array();
  if (const auto now = impl_->meeting.phases()->read(); now && now->times.steps > 0)
    own.push_back(watch::to_json(watch::mean_of(now->times), rank()));
  return {{"phases", own}, {"stragglers", Json::array()}};
}

double World::coordinator_cpu_seconds() { return impl_->meeting.coordinator_cpu_seconds(); }

const std::shared_ptr<World::OwnLoop>& World::own_loop() const { return impl_->own_loop; }

const std::shared_ptr<Group>& World::loop_group() {
  own_loop()->require_not_left("an operation");
  if (!impl_->loop_group) impl_->loop_group = make_groups(1)[0];
  return impl_->loop_group;
}

int64_t World::share(int64_t batch) {
  if (batch < size())
    throw Error(
        ErrorCode::invalid_argument, "comm",
        fmt::format("a global batch of {} for {} ranks: some would get no sample", batch, size()),
        fmt::format("a batch of {} or more, or fewer ranks", size()));
  const auto [first, last] = plan::DataPlan::share(batch, rank(), size());
  // An evaluation changes nothing for the training that it interrupts.
  if (c10::GradMode::is_enabled()) own_loop()->take_batch({last - first, batch});
  return last - first;
}

void World::weigh(double own) {
  if (size() == 1) return weigh(own, own);
  if (own_loop()->turns)
    throw Error(ErrorCode::unsupported, "comm",
                "World::weigh() of all ranks in a loop whose ranks may have no batch (joins)",
                "weigh(own, total) with a total that each rank knows");
  const at::Tensor sum = at::tensor({own}, at::kDouble);
  loop_group()->all_reduce(sum);
  weigh(own, sum.item<double>());
}

void World::weigh(double own, double total) {
  if (!(own >= 0) || !(total > 0) || !std::isfinite(own) || !std::isfinite(total))
    throw Error(ErrorCode::invalid_argument, "comm",
                fmt::format("World::weigh() was given {}, of {}", own, total),
                "a weight that is not negative, and a total above 0");
  OwnLoop::BatchInHand next = own_loop()->batch;
  next.weight = own / total;
  own_loop()->take_batch(next);
}

void World::compare_at_the_end(const std::map<std::string, std::string>& own) {
  try {
    agree("the parameters at leave()", comm::facts_of(own));
  } catch (const Error& error) {
    // Another remedy is right if the others have not come here.
    if (error.code() != ErrorCode::invalid_argument || impl_->meeting.member()->is_lost()) throw;
    throw comm::difference_at_the_end(*impl_->meeting.member(), rank(), size(), own,
                                      Deadline::after(options().timeout));
  }
}

void World::leave() {
  if (std::exchange(impl_->has_left, true)) return;
  OwnLoop& loop = *own_loop();
  impl_->meeting.phases()->set(Phase::leaving);
  // A rank that has found a mistake meets the others all the same, so that all can tell theirs.
  std::exception_ptr mistake;
  for (const auto& each : loop.before_leave) {
    const auto tell = each.lock();
    try {
      if (tell) (*tell)();
    } catch (const Error&) {
      if (!mistake) mistake = std::current_exception();
    }
  }
  try {
    if (!loop.facts_at_the_end.empty()) compare_at_the_end(loop.facts_at_the_end);
  } catch (const Error&) {
    if (!mistake) throw;
  }
  if (mistake) std::rethrow_exception(mistake);
  loop.has_left = true;
  comm::leave_mpi(Deadline::after(impl_->options().timeout));
  impl_->meeting.leave();
}

}  // namespace trireme
