#include <trireme/config/registry.h>
#include <trireme/parallel/data_parallel_engine.h>
#include <trireme/parallel/engine.h>
#include <trireme/plan/strategy.h>

namespace trireme {
namespace {

// The strategies that come with Trireme differ only in where their ranks run.
config::Registry<Strategy>::Things built_in_strategies() {
  config::Registry<Strategy>::Things known;
  for (const std::string& name : plan::strategies())
    known.emplace(name, Strategy{make_data_parallel_engine, {true, true, true, true, true, true}});
  return known;
}

config::Registry<Strategy>& known_strategies() {
  static config::Registry<Strategy> known("strategy", built_in_strategies(), "auto");
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
