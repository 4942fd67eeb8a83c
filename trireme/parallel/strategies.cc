#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/parallel/data_parallel_engine.h>
#include <trireme/parallel/engine.h>
#include <trireme/plan/strategy.h>
#include <map>
#include <mutex>

namespace trireme {
namespace {

// The strategies that come with Trireme differ only in where their ranks run.
std::map<std::string, Strategy> built_in_strategies() {
  std::map<std::string, Strategy> known;
  for (const std::string_view name : plan::strategies())
    known.emplace(name, Strategy{make_data_parallel_engine, {true, true, true, true, true, true}});
  return known;
}

struct KnownStrategies {
  std::mutex mutex;
  std::map<std::string, Strategy> by_name = built_in_strategies();
};
KnownStrategies& known_strategies() {
  static KnownStrategies instance;
  return instance;
}

[[noreturn]] void refuse_strategy(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, remedy);
}

}  // namespace

void register_strategy(const std::string& name, Strategy strategy) {
  if (name.empty() || name == "auto")
    refuse_strategy(fmt::format("a strategy cannot be named '{}'", name), "another name");
  if (!strategy.make)
    refuse_strategy(fmt::format("nothing makes the engines of strategy '{}'", name),
                    "a function, such as make_engine<Kind>");
  KnownStrategies& known = known_strategies();
  const std::lock_guard lock(known.mutex);
  if (!known.by_name.emplace(name, std::move(strategy)).second)
    refuse_strategy(fmt::format("a strategy '{}' already exists", name), "another name");
}

std::vector<std::string> strategy_names() {
  KnownStrategies& known = known_strategies();
  const std::lock_guard lock(known.mutex);
  std::vector<std::string> names;
  for (const auto& [name, strategy] : known.by_name) names.push_back(name);
  return names;
}

Strategy find_strategy(const std::string& name) {
  {
    KnownStrategies& known = known_strategies();
    const std::lock_guard lock(known.mutex);
    if (const auto found = known.by_name.find(name); found != known.by_name.end())
      return found->second;
  }
  refuse_strategy(fmt::format("strategy '{}' is not known", name),
                  fmt::format("auto, {}, or register_strategy() before the Trainer is made",
                              fmt::join(strategy_names(), ", ")));
}

}  // namespace trireme
