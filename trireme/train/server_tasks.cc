#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/servers/parameter_server.h>
#include <trireme/parallel/servers/tables/model_tables.h>
#include <trireme/plan/consistency_change.h>
#include <trireme/plan/server_plan.h>
#include <trireme/train/refuse.h>
#include <trireme/train/replica_model.h>
#include <trireme/train/server_tasks.h>
#include <trireme/train/stop_signal.h>
#include <trireme/train/trainer.h>
#include <trireme/train/trainer_facts.h>
#include <algorithm>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace trireme {
namespace {

constexpr Milliseconds kLookAtTheJob{20};
constexpr Milliseconds kLookForRequests{200};

std::string address_key(int server) { return fmt::format("address of ps {}", server); }

ParameterServerOptions server_options(const World& world, const TrainerOptions& options,
                                      const Job& job, const ReplicaModel& model) {
  ParameterServerOptions server;
  server.placement = plan::place_on_servers(specs_of(model.tensors().parameters), options.ps);
  server.server = world.task().index;
  server.optimizer = job.optimizer;
  server.consistency = options.ps.consistency;
  server.workers = world.workers();
  server.compensation = options.ps.compensation;
  server.compression = options.compression;
  server.patience = options.ps.patience;
  // Workers look at their gradients, so that guard.policy holds.
  server.refuses_nonfinite = false;
  if (job.tables) {  // The model, which was made, has said how their rows begin.
    server.tables = plan::plan_tables({job.tables->tables(), options.ps.servers});
    server.table_options = job.tables->options();
  }
  return server;
}

bool is_server(const membership::Task& task, int server) {
  return task.role == membership::kServerRole && task.index == server;
}

// The process that has the task and serves; waits for it.
ServerPlace place_of(World& world, int server, Deadline deadline) {
  const net::Endpoint address =
      net::parse_endpoint(world.get_value(address_key(server), deadline));
  for (const membership::TaskPeer& peer : world.peers(membership::kServerRole))
    if (is_server(peer.task, server)) return {address, peer.incarnation};
  throw Error(ErrorCode::peer_lost, "train", fmt::format("server {} is lost", server));
}

// The same without waiting; empty: there is none now.
std::optional<ServerPlace> place_now(World& world, int server) {
  const auto peers = world.peers(membership::kServerRole);
  if (std::ranges::none_of(peers, [&](const auto& peer) { return is_server(peer.task, server); }))
    return std::nullopt;
  try {
    return place_of(world, server, Deadline::after(kLookAtTheJob));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timeout && error.code() != ErrorCode::peer_lost) throw;
    return std::nullopt;
  }
}

bool was_lost(const World& world, int server) {
  return std::ranges::any_of(world.lost_tasks(), [server](const membership::LostTask& lost) {
    return is_server(lost.who.task, server);
  });
}

// Whether some pieces are on servers without a place alone.
bool lacks_pieces(const ServerPlaces& places, const plan::PsOptions& ps) {
  for (int server = 0; server < ps.servers; ++server) {
    bool any = false;
    for (int i = 0; i < plan::replication_of(ps); ++i)
      any = any || places[static_cast<size_t>((server + i) % ps.servers)];
    if (!any) return true;
  }
  return false;
}

// Waits for all servers, but not for those that were lost if others have their pieces.
ServerPlaces places_of(World& world, const plan::PsOptions& ps, Deadline deadline) {
  ServerPlaces places(static_cast<size_t>(ps.servers));
  std::vector<int> lost;
  for (int server = 0; server < ps.servers; ++server)
    if (was_lost(world, server)) lost.push_back(server);
  if (lost.empty())
    if (const auto tasks = world.wait_for(membership::kServerRole, deadline);
        std::ssize(tasks) != ps.servers)
      refuse_option(fmt::format("ps.servers is {}, and the job has {} tasks of the role ps",
                                ps.servers, tasks.size()),
                    fmt::format("--ps {}", tasks.size()));
  for (int server = 0; server < ps.servers; ++server)
    places[static_cast<size_t>(server)] = std::ranges::count(lost, server) > 0
                                              ? place_now(world, server)
                                              : place_of(world, server, deadline);
  if (lacks_pieces(places, ps))
    for (const int server : lost)
      places[static_cast<size_t>(server)] = place_of(world, server, deadline);
  return places;
}

// Makes the changes of consistency for which a command from outside asks. A server that gets the
// clock from a lost one makes the last change again.
class ConsistencyChanges {
 public:
  ConsistencyChanges(World& world, ParameterServer& server, const TrainerOptions& options)
      : world_(world), server_(server), options_(options) {}

  void look() {
    if (!server_.has_clock() || !next_look_.expired()) return;
    next_look_ = Deadline::after(kLookForRequests);
    try {
      announce();
      const auto text = world_.find_value(plan::kConsistencyRequestKey);
      if (!text) return;
      const auto request = plan::ConsistencyRequest::from_json(Json::parse(*text));
      if (request.id == last_) return;
      world_.set_value(plan::kConsistencyAnswerKey, make(request).to_json().dump());
      last_ = request.id;
    } catch (const std::exception& error) {  // The coordinator may come back.
      log_debug("no request for another consistency can be read: {}", brief(error));
    }
  }

 private:
  // Tells commands that this job can be asked.
  void announce() {
    if (std::exchange(is_announced_, true)) return;
    if (!world_.find_value(plan::kConsistencyAnswerKey))
      world_.set_value(plan::kConsistencyAnswerKey, plan::ConsistencyAnswer{}.to_json().dump());
  }

  plan::ConsistencyAnswer make(const plan::ConsistencyRequest& request) {
    plan::ConsistencyAnswer answer{.id = request.id};
    try {
      check_change(request.options);
      answer.before = server_.change(request.options);
      log_info("ps.consistency was {}, and is {} from now on", describe(answer.before),
               describe(request.options));
    } catch (const Error& error) {
      const ErrorParts parts = parts_of(error);
      answer.refused = parts.what;
      answer.remedy = parts.remedy;
      log_warning("ps.consistency stays as it is: {}", answer.refused);
    }
    return answer;
  }

  // Throws Error for a change that the job's other options, or its workers, do not allow.
  void check_change(const plan::ConsistencyOptions& wanted) const {
    if (plan::is_in_step(options_.ps.consistency))
      refuse_option(
          "the job began with ps.consistency=sync, in which workers take the same batches as with "
          "all-reduce, and not leases at their own pace",
          "a job that begins with ps.consistency=stale and ps.staleness=0");
    TrainerOptions options = options_;
    options.ps.consistency = wanted;
    resolve_strategy(options, world_.workers());
  }

  World& world_;
  ParameterServer& server_;
  const TrainerOptions& options_;
  Deadline next_look_ = Deadline::after(Milliseconds(0));
  bool is_announced_ = false;
  std::string last_;  // The request that was answered last.
};

}  // namespace

void Trainer::serve(const Job& job, std::shared_ptr<const Source> train,
                    std::shared_ptr<const Source> test) {
  if (world_.task().role != membership::kServerRole || world_.task().index >= options_.ps.servers)
    refuse_option(fmt::format("{} is no parameter server of a job with ps.servers {}",
                              world_.task().name(), options_.ps.servers),
                  "--ps with the number of tasks of the role ps");
  const StopSignal stop_signal;
  at::set_num_threads(options_.threads);
  const ReplicaModel model(job, options_, /*in_parts=*/false);
  auto facts = facts_of(options_, job, *train, test.get());
  facts.merge(facts_of(model.tensors()));
  world_.set_terms(std::move(facts));
  world_.connect();
  ParameterServer server({world_.own_address(), 0}, world_.token(),
                         server_options(world_, options_, job, model));
  world_.set_value(address_key(world_.task().index), server.endpoint().describe());
  log_info("serves at {}", server.endpoint().describe());
  ConsistencyChanges changes(world_, server, options_);
  while (!world_.finish_wanted() && !StopSignal::requested()) {
    changes.look();
    std::this_thread::sleep_for(kLookAtTheJob);
  }
}

std::shared_ptr<const ServerAccess> access_to_servers(World& world, const plan::PsOptions& ps) {
  auto access = std::make_shared<ServerAccess>();
  access->options = ps;
  access->token = world.token();
  access->generation = world.identity().generation;
  access->find = [&world, ps](Deadline deadline) { return places_of(world, ps, deadline); };
  access->find_again = [&world](int server) { return place_now(world, server); };
  access->is_lost = [&world](int server, int incarnation) {
    return std::ranges::any_of(world.lost_tasks(), [&](const membership::LostTask& lost) {
      return is_server(lost.who.task, server) && lost.who.incarnation >= incarnation;
    });
  };
  access->why_lost = [&world](int server, int incarnation) {
    std::string why;  // The newest: the reason of a loss may be told again.
    for (const membership::LostTask& lost : world.lost_tasks())
      if (is_server(lost.who.task, server) && lost.who.incarnation >= incarnation)
        why = fmt::format("{} on host {} (pid {}) was lost: {}", lost.who.task.name(),
                          lost.who.host, lost.who.pid, lost.reason);
    return why;
  };
  access->look = [&world] {
    if (world.lost_a_worker())
      throw Error(ErrorCode::peer_lost, "train",
                  "a worker was lost, or the connection to the coordinator",
                  world.is_elastic() ? "nothing: the others go on"
                                     : "the job again: it continues from the newest checkpoint");
  };
  return access;
}

}  // namespace trireme
