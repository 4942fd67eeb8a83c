#include <trireme/config/registry.h>
#include <trireme/parallel/data_parallel_engine.h>
#include <trireme/parallel/engine.h>
#include <trireme/plan/strategy.h>

namespace trireme {
namespace {

// Each has its row in plan/strategy.cc too. These three differ only in where their ranks run.
config::Registry<Strategy>& known_strategies() {
  static const Strategy data_parallel{make_data_parallel_engine,
                                      {.clip_norm = true,
                                       .compression = true,
                                       .local_steps = true,
                                       .virtual_shards = true,
                                       .loss_scaling = true,
                                       .sync_batch_norm = true,
                                       .memory = true}};
  static config::Registry<Strategy> known("strategy",
                                          {{"one_device", data_parallel},
                                           {"mirrored", data_parallel},
                                           {"multi_worker", data_parallel}},
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
