#include <trireme/config/registry.h>
#include <trireme/parallel/data_parallel_engine.h>
#include <trireme/parallel/engine.h>
#include <trireme/parallel/mesh/mesh_engine.h>
#include <trireme/plan/strategy.h>

namespace trireme {
namespace {

// Each has its row in plan/strategy.cc too. The first three differ only
// in where their ranks run, and the others in the axes of their mesh.
config::Registry<Strategy>& known_strategies() {
  static const Strategy data_parallel{make_data_parallel_engine,
                                      {true, true, true, true, true, true}};
  static const Strategy mesh{make_mesh_engine,
                             {.clip_norm = true,
                              .loss_scaling = true,
                              .equal_replicas = false,
                              .averages = false,
                              .divides = true},
                             needs_of_mesh};
  static config::Registry<Strategy> known("strategy",
                                          {{"one_device", data_parallel},
                                           {"mirrored", data_parallel},
                                           {"multi_worker", data_parallel},
                                           {"pipeline", mesh},
                                           {"sharded", mesh},
                                           {"tensor", mesh}},
                                          "auto");
  return known;
}

}  // namespace

void register_strategy(const std::string& name, Strategy strategy) {
  known_strategies().add(name, std::move(strategy));
  plan::add_strategy(name);  // A configuration may name it.
}

std::vector<std::string> strategy_names() { return known_strategies().names(); }

Strategy find_strategy(const std::string& name) { return known_strategies().find(name); }

}  // namespace trireme
