#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>

#include <trireme/parallel/optimizer_transfer.h>
#include <trireme/parallel/own_steps_impl.h>

namespace trireme {

void OwnSteps::Impl::answer(int64_t what) {
  if (what == kBackward) {
    forget_gradients();
    reduce();
  } else if (what == kClosure) {
    mean_of(0, 0);
  } else {
    ++steps;
    loop->end_step(teller);
  }
}

void OwnSteps::Impl::join() {
  if (loop->turns) return loop->join();
  int engines = 0;
  for (const auto& each : loop->rebind) engines += each.expired() ? 0 : 1;
  if (engines > 1)
    throw Error(ErrorCode::unsupported, "parallel",
                fmt::format("join() in a loop with {} optimizers: a rank cannot know in which of "
                            "them the others wait",
                            engines),
                "OwnStepsOptions::joins for each of them");
  if (loop->meetings > 0)
    throw Error(ErrorCode::unsupported, "parallel",
                "join() in a loop with a LoopRecord or a Checkpoint: the ranks that have batches "
                "would wait in them for this one",
                "OwnStepsOptions::joins for its optimizers");
  loop->has_joined = true;
  const std::shared_ptr<void> until_the_end(nullptr, [this](void*) { loop->has_joined = false; });
  while (true) {
    forget_gradients();
    if (reduce().samples == 0) break;
    loop->end_step(teller);
  }
  take_state_of(last_to_come());
  has_means = false;
}

// The rank that has made the most steps.
int OwnSteps::Impl::last_to_come() const {
  const at::Tensor mine = at::tensor({steps}, at::kLong);
  const at::Tensor all = at::zeros({engine.group->size()}, at::kLong);
  engine.group->all_gather(mine, all);
  return static_cast<int>(all.argmax().item<int64_t>());
}

void OwnSteps::Impl::take_state_of(int root) {
  broadcast_tensors(*engine.group, engine.state.parameters, root);
  broadcast_tensors(*engine.group, engine.state.buffers, root);
  take_optimizer_of(root, *engine.group, optimizer, engine.parameters);
  at::Tensor made = at::tensor({steps}, at::kLong);
  engine.group->broadcast(made, root);
  steps = made.item<int64_t>();
  checks.adopt_writes();
}

}  // namespace trireme
