#include <ATen/core/Tensor.h>

#include <trireme/parallel/mesh/part_state.h>
#include <algorithm>

namespace trireme {
namespace {

// The part that a state tensor belongs to, which is named "exp_avg/conv1.weight". Null if the rank
// does not have it.
const OwnTensor* part_with_state(const std::vector<OwnTensor>& parts, const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return nullptr;
  const auto found = std::ranges::find(parts, name.substr(slash + 1), &OwnTensor::name);
  return found == parts.end() ? nullptr : &*found;
}

}  // namespace

void show_parts(const OptimizerView& optimizer, const std::vector<OwnTensor>& parts,
                EngineState& state) {
  const size_t first = state.tensors.size();
  optimizer.show(state);
  for (size_t i = first; i < state.tensors.size(); ++i)
    if (const OwnTensor* const part = part_with_state(parts, state.tensors[i].slice.tensor)) {
      plan::TensorSlice slice = part->slice;
      slice.tensor = state.tensors[i].slice.tensor;
      state.tensors[i].slice = std::move(slice);
    }
}

void begin_load_parts(OptimizerView& optimizer, const std::vector<OwnTensor>& parts,
                      const IncomingState& incoming) {
  std::vector<plan::TensorSpec> mine;
  for (const plan::TensorSpec& spec : incoming.tensors) {
    const OwnTensor* const part = part_with_state(parts, spec.name);
    if (part == nullptr && spec.name != "archive") continue;
    mine.push_back(spec);
    if (part) mine.back().shape = part->slice.sizes;
  }
  optimizer.begin_load(incoming.counters, mine);
}

}  // namespace trireme
