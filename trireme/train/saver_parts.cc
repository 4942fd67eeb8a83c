// A state whose parts are in the memory of several ranks.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trireme/base/log.h>
#include <trireme/checkpoint/step_name.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/agreement.h>
#include <trireme/train/parts_in_memory.h>
#include <trireme/train/saver.h>
#include <trireme/train/state_head.h>

namespace trireme {

// The ranks take their parts from each other's memory, or find that they cannot.
std::optional<Saver::Restored> Saver::restore_parts(Engine& engine, const StateView& of_run,
                                                    const RunState* kept,
                                                    const std::vector<const RunState*>& copies) {
  std::vector<const RunState*> own = copies;
  if (kept && kept->in_slices) own.insert(own.begin(), kept);
  const int64_t saved_step =
      found_by_first(group_, [&] { return Json{{"step", newest_saved_step()}}; })["step"];
  const PartsInMemory parts(own, saved_step, group_);
  if (!parts.missing().empty()) {
    if (group_.rank() == 0)
      log_warning("{}: all go back to the newest checkpoint", parts.missing());
    return std::nullopt;
  }
  const bool is_first = group_.rank() == parts.first_holder();
  Json head = is_first ? head_of(parts.first_part(), /*from_memory=*/true) : Json();
  head = broadcast_value(group_, head, parts.first_holder());
  if (parts.are_copies() && group_.rank() == 0)
    log_warning("{}: all go back to step {}, of which workers that are left have copies",
                parts.lost(), head["step"].get<int64_t>());
  parts.complete(head["counters"]);
  parts.fill(wanted_of_model(engine.state().tensors));
  engine.begin_load({head["counters"], parts.others(), /*model_is_new=*/true});

  const StateView all = joined(engine.state().tensors, of_run);
  learn_slices(all);
  const auto [in_slices, whole_ones] = divided(all);
  Restored restored;
  restored.found = parts.fill(in_slices);
  SavedTensors saved;  // Rank 0 hands out what the ranks do not have in slices.
  StateView of_first;
  for (const plan::TensorSpec& spec :
       group_.rank() == 0 ? parts.others() : decltype(parts.others())()) {
    if (slices_.tensors.contains(spec.name)) continue;
    const at::Tensor tensor =
        at::empty(spec.shape, at::TensorOptions().dtype(to_torch(spec.dtype)));
    saved.by_name.emplace(spec.name, tensor);
    of_first.push_back(whole(spec.name, tensor, StateKind::optimizer));
  }
  parts.fill(of_first);
  restored.found.merge(fill(whole_ones, saved, /*only_common=*/true, group_));
  if (kept && !parts.are_copies()) take_own(all, kept->own);
  engine.end_load();
  restored.progress = progress_in(head);
  restored.from_memory = restored.goes_on = true;
  restored.from_copies = parts.are_copies();
  return restored;
}

// The step of the newest checkpoint, where this rank writes them; -1 if there is none. A
// checkpoint that is being written counts when it is done.
int64_t Saver::newest_saved_step() const {
  if (group_.rank() > 0 || !writer_) return -1;
  writer_->wait();
  const auto steps = checkpoint::steps_in(checkpoint::disk(), writer_->path());
  return steps.empty() ? -1 : steps.front();
}

// The tensors of the model that this rank reads: its slices, and on rank 0 the whole ones, which
// the engine's begin_load() gives to all.
StateView Saver::wanted_of_model(const StateView& state) const {
  StateView wanted;
  for (const StateEntry& entry : state)
    if (is_of_model(entry.kind) && (group_.rank() == 0 || slices_.has(entry)))
      wanted.push_back(entry);
  return wanted;
}

// The tensors beside the model: those in slices, and the others.
std::pair<StateView, StateView> Saver::divided(const StateView& state) const {
  std::pair<StateView, StateView> parts;
  for (const StateEntry& entry : state)
    if (!is_of_model(entry.kind))
      (slices_.has(entry) ? parts.first : parts.second).push_back(entry);
  return parts;
}

}  // namespace trireme
