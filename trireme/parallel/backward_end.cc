#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <trireme/parallel/backward_end.h>
#include <map>
#include <utility>

namespace trireme {
namespace {

// By engine.
std::map<int, std::function<void()>>& reached_now() {
  static thread_local std::map<int, std::function<void()>> reached;
  return reached;
}

}  // namespace

void at_end_of_backward(int engine, std::function<void()> finish) {
  static thread_local int task = -1;  // The backward of `reached_now()`.
  if (const int now = torch::autograd::get_current_graph_task_id(); now != task) {
    task = now;
    reached_now().clear();
    torch::autograd::Engine::get_default_engine().queue_callback([] {
      for (const auto& [number, each] : std::exchange(reached_now(), {})) each();
    });
  }
  reached_now().emplace(engine, std::move(finish));
}

void forget_backward(int engine) { reached_now().erase(engine); }

}  // namespace trireme
