#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/config/names.h>
#include <trireme/plan/strategy.h>

namespace trireme::plan {

namespace {

config::Names& known_strategies() {
  static config::Names names({"one_device", "mirrored", "multi_worker"});
  return names;
}

}  // namespace

std::vector<std::string> strategies() { return known_strategies().all(); }
void add_strategy(const std::string& name) { known_strategies().add(name); }

std::string resolve_strategy(const std::string& name, int workers, int replicas) {
  if (name == "auto")
    return workers > 1 ? "multi_worker" : replicas > 1 ? "mirrored" : "one_device";
  const auto refuse = [&](const std::string& what, const char* remedy) {
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("strategy.name is {}, which is {}", name, what), remedy);
  };
  if ((name == "one_device" || name == "mirrored") && workers > 1)
    refuse(fmt::format("one process, but there are {} workers", workers),
           "strategy.name=multi_worker, or one worker (--workers 1), with replicas if mirrored");
  if (name == "one_device" && replicas > 1)
    refuse(fmt::format("one replica, but there are {} replicas (strategy.replicas)", replicas),
           "strategy.name=mirrored (threads) or multi_worker (processes)");
  return name;
}

}  // namespace trireme::plan
