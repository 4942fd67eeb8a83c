#include <trireme/tensor/autograd_engine.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <optional>
#include <typeinfo>

namespace trireme {
namespace {

class EngineThatAsks : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks()
      override {
    const auto saved_hooks = threads_autograd().saved_hooks;
    return saved_hooks == nullptr ? nullptr : saved_hooks();
  }
  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    std::optional<AllocationScope> scope;
    const auto gradient_memory = threads_autograd().gradient_memory;
    if (gradient_memory != nullptr && !create_graph && !AllocationScope::is_open())
      scope.emplace(gradient_memory());
    const auto backward_begins = threads_autograd().backward_begins;
    const bool is_inside = torch::autograd::get_current_graph_task_id() >= 0;
    std::function<void()> end;
    if (backward_begins != nullptr && accumulate_grad && !is_inside) end = backward_begins();
    torch::autograd::variable_list results;
    try {
      results = Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
    } catch (...) {
      if (end) end();
      throw;
    }
    if (end) end();
    return results;
  }
};

// The engine lives to the end of the process, because graphs and threads of autograd do too.
torch::autograd::Engine& engine_that_asks() {
  static auto* const engine = new EngineThatAsks();
  return *engine;
}

}  // namespace

ThreadsAutograd& threads_autograd() {
  thread_local ThreadsAutograd own;
  return own;
}

bool install_autograd_engine() {
  static const bool is_installed = [] {
    const torch::autograd::Engine& engine = torch::autograd::Engine::get_default_engine();
    if (typeid(engine) != typeid(torch::autograd::Engine)) return false;
    torch::autograd::set_default_engine_stub(&engine_that_asks);
    return true;
  }();
  return is_installed;
}

}  // namespace trireme
