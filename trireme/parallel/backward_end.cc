#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <trireme/parallel/backward_end.h>
#include <map>
#include <mutex>
#include <utility>

namespace trireme {
namespace {

// The engines that each backward has reached. Autograd has a thread for each accelerator: hooks
// run there, and the end of a backward comes on the thread that is done last.
struct ReachedEngines {
  std::mutex mutex;
  std::map<int, std::map<int, std::function<void()>>> by_backward;

  // An engine takes part in one backward at a time.
  void forget(int engine) {
    for (auto backward = by_backward.begin(); backward != by_backward.end();) {
      backward->second.erase(engine);
      backward = backward->second.empty() ? by_backward.erase(backward) : std::next(backward);
    }
  }
};
ReachedEngines& reached_engines() {
  static auto* const reached = new ReachedEngines;  // Threads of autograd outlive main().
  return *reached;
}

void finish_all(int backward) {
  std::map<int, std::function<void()>> engines;
  {
    const std::lock_guard lock(reached_engines().mutex);
    if (auto found = reached_engines().by_backward.extract(backward)) engines = found.mapped();
  }
  for (const auto& [number, each] : engines) each();
}

}  // namespace

void at_end_of_backward(int engine, std::function<void()> finish) {
  const int now = torch::autograd::get_current_graph_task_id();
  ReachedEngines& reached = reached_engines();
  const std::lock_guard lock(reached.mutex);
  reached.forget(engine);
  const bool is_first = !reached.by_backward.contains(now);
  reached.by_backward[now].emplace(engine, std::move(finish));
  if (is_first)
    torch::autograd::Engine::get_default_engine().queue_callback([now] { finish_all(now); });
}

void forget_backward(int engine) {
  const std::lock_guard lock(reached_engines().mutex);
  reached_engines().forget(engine);
}

}  // namespace trireme
