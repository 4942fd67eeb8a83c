#include <trireme/base/error.h>
#include <trireme/config/registry.h>
#include <trireme/parallel/data_parallel_engine.h>
#include <trireme/parallel/engine.h>
#include <trireme/parallel/mesh/mesh_engine.h>
#include <trireme/parallel/servers/server_engine.h>
#include <trireme/plan/mesh_plan.h>
#include <trireme/plan/strategy.h>
#include <set>
#include <string>

namespace trireme {
namespace {

std::set<std::string> names_of_all(const torch::nn::Module& module) {
  std::set<std::string> names;
  const ModuleState state = state_of(module);
  for (const auto* const part : {&state.parameters, &state.buffers})
    for (const auto& [name, tensor] : *part) names.insert(name);
  return names;
}

// Replicas of one host that share parameters already have no more in memory than levels 1 and 2
// leave them (docs/sharding.md), and copy less.
std::unique_ptr<Engine> make_sharded_engine(const EngineSetting& setting) {
  plan::DataParallelFacts facts;
  facts.share_parameters = setting.options.share_parameters;
  facts.division = setting.division;
  facts.placement = setting.group->placement();
  if (plan::may_share_instead(facts)) {
    if (setting.keep_only) setting.keep_only(names_of_all(*setting.model.module));
    auto sharing = make_data_parallel_engine(setting);
    if (sharing->shares_parameters()) return sharing;  // The optimizer may need copies.
  }
  return make_mesh_engine(setting);
}

// The shared exchange keeps one copy of parameters and state for the replicas of a process. Where
// it cannot, the word would promise too much.
std::unique_ptr<Engine> make_central_storage_engine(const EngineSetting& setting) {
  auto engine = make_data_parallel_engine(setting);
  if (setting.group->size() > 1 && !engine->shares_parameters())
    throw Error(
        ErrorCode::unsupported, "parallel",
        "strategy central_storage keeps all parameters once, and those of this model cannot "
        "be shared: the optimizer is none of Trireme's, parameters lie in each other's "
        "memory, or parameters of 16 bits have no masters",
        "strategy.name=mirrored, whose replicas then have copies");
  return engine;
}

// Each has its row in plan/strategy.cc too. The first four differ only in where their ranks run,
// and the next three in the axes of their mesh.
config::Registry<Strategy>& known_strategies() {
  const auto features = [](const char* name) { return plan::features_of(name).value(); };
  static const Strategy data_parallel{make_data_parallel_engine, features("one_device")};
  static const Strategy central{make_central_storage_engine, features("central_storage")};
  static const Strategy mesh{make_mesh_engine, features("pipeline"), needs_of_mesh};
  static const Strategy sharded{make_sharded_engine, features("sharded"), needs_of_mesh};
  static const Strategy servers{make_server_engine, features("parameter_server")};
  static config::Registry<Strategy> known("strategy",
                                          {{"one_device", data_parallel},
                                           {"mirrored", data_parallel},
                                           {"multi_worker", data_parallel},
                                           {"central_storage", central},
                                           {"pipeline", mesh},
                                           {"sharded", sharded},
                                           {"tensor", mesh},
                                           {"parameter_server", servers}},
                                          "auto");
  return known;
}

}  // namespace

void register_strategy(const std::string& name, Strategy strategy) {
  const StrategyFeatures features = strategy.features;
  known_strategies().add(name, std::move(strategy));
  plan::add_strategy(name, features);  // A configuration may name it.
}

std::vector<std::string> strategy_names() { return known_strategies().names(); }

Strategy find_strategy(const std::string& name) { return known_strategies().find(name); }

}  // namespace trireme
