#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/servers/parameter_server.h>
#include <trireme/plan/server_plan.h>
#include <trireme/train/refuse.h>
#include <trireme/train/replica_model.h>
#include <trireme/train/server_tasks.h>
#include <trireme/train/stop_signal.h>
#include <trireme/train/trainer.h>
#include <trireme/train/trainer_facts.h>
#include <thread>

namespace trireme {
namespace {

constexpr Milliseconds kLookAtTheJob{20};

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
  server.patience = options.ps.patience;
  // Workers look at their gradients, so that guard.policy holds.
  server.refuses_nonfinite = false;
  return server;
}

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
  while (!world_.finish_wanted() && !StopSignal::requested())
    std::this_thread::sleep_for(kLookAtTheJob);
}

std::shared_ptr<const ServerAccess> access_to_servers(World& world, const plan::PsOptions& ps) {
  auto access = std::make_shared<ServerAccess>();
  access->options = ps;
  access->token = world.token();
  access->generation = world.identity().generation;
  access->find = [&world, servers = ps.servers](Deadline deadline) {
    if (const auto tasks = world.wait_for(membership::kServerRole, deadline);
        std::ssize(tasks) != servers)
      refuse_option(fmt::format("ps.servers is {}, and the job has {} tasks of the role ps",
                                servers, tasks.size()),
                    fmt::format("--ps {}", tasks.size()));
    std::vector<net::Endpoint> endpoints;
    for (int server = 0; server < servers; ++server)
      endpoints.push_back(net::parse_endpoint(world.get_value(address_key(server), deadline)));
    return endpoints;
  };
  access->look = [&world] {
    if (world.lost_a_worker())
      throw Error(ErrorCode::peer_lost, "train", "a worker was lost",
                  "nothing: the others go on without it");
  };
  return access;
}

}  // namespace trireme
