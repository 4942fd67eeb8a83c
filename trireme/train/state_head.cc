#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <trireme/train/state_head.h>

namespace trireme {

Json head_of(const RunState& state, bool from_memory) {
  return {{"found", true},
          {"from_memory", from_memory},
          {"step", state.progress.step},
          {"skipped", state.progress.skipped_steps},
          {"stopping", state.progress.stopping},
          {"losses", state.progress.loss_history},
          {"ledger", state.progress.ledger.to_json()},
          {"guard", state.progress.guard},
          {"resize", state.progress.resize},
          {"early_stop", state.progress.early_stop},
          {"counters", state.counters},
          {"epoch", state.progress.position.epoch},
          {"consumed", state.progress.position.consumed}};
}

Progress progress_in(const Json& head) {
  return {head["step"],     head["skipped"], {head["epoch"], head["consumed"]},
          head["stopping"], head["losses"],  Ledger::from_json(head["ledger"], "rank 0"),
          head["guard"],    head["resize"],  head["early_stop"]};
}

StateView joined(StateView view, const StateView& more) {
  view.insert(view.end(), more.begin(), more.end());
  return view;
}

void take_own(const StateView& view, const StateView& own) {
  const at::NoGradGuard no_grad;
  for (const StateEntry& entry : view)
    for (const StateEntry& kept : own)
      if (is_of_one_rank(entry.kind) && entry.slice == kept.slice) entry.tensor.copy_(kept.tensor);
}

}  // namespace trireme
