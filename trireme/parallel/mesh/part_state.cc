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

std::vector<int64_t> sizes_of(const std::vector<plan::TensorSlice>& boxes) {
  std::vector<int64_t> sizes = boxes.front().sizes;
  for (size_t i = 1; i < boxes.size(); ++i) sizes[0] += boxes[i].sizes[0];
  return sizes;
}

}  // namespace

std::vector<plan::TensorSlice> rows_of(const std::vector<plan::TensorSlice>& boxes, int64_t from,
                                       int64_t to) {
  std::vector<plan::TensorSlice> rows;
  int64_t first = 0;  // The box's first row in the tensor.
  for (const plan::TensorSlice& box : boxes) {
    const int64_t begin = std::max(from, first), end = std::min(to, first + box.sizes[0]);
    if (begin < end || (rows.empty() && &box == &boxes.back())) {
      plan::TensorSlice& part = rows.emplace_back(box);
      part.from[0] += std::min(begin - first, box.sizes[0]);
      part.sizes[0] = std::max<int64_t>(0, end - begin);
    }
    first += box.sizes[0];
  }
  return rows;
}

void show_boxes(const std::string& name, const std::vector<plan::TensorSlice>& boxes,
                const at::Tensor& tensor, StateKind kind, StateView& view) {
  int64_t first = 0;
  for (plan::TensorSlice box : boxes) {
    const bool is_all = boxes.size() == 1;
    const at::Tensor rows = is_all ? tensor : tensor.detach().narrow(0, first, box.sizes[0]);
    if (!is_all) first += box.sizes[0];
    box.tensor = name;
    view.push_back({std::move(box), rows, kind});
  }
}

void show_parts(const OptimizerView& optimizer, const std::vector<OwnTensor>& parts,
                EngineState& state) {
  EngineState own;
  optimizer.show(own);
  state.counters.update(own.counters);
  for (const StateEntry& entry : own.tensors)
    if (const OwnTensor* const part = part_with_state(parts, entry.slice.tensor))
      show_boxes(entry.slice.tensor, part->boxes, entry.tensor, entry.kind, state.tensors);
    else
      state.tensors.push_back(entry);
}

void begin_load_parts(OptimizerView& optimizer, const std::vector<OwnTensor>& parts,
                      const IncomingState& incoming) {
  std::vector<plan::TensorSpec> mine;
  for (const plan::TensorSpec& spec : incoming.tensors) {
    const OwnTensor* const part = part_with_state(parts, spec.name);
    if (part == nullptr && spec.name != "archive") continue;
    mine.push_back(spec);
    if (part) mine.back().shape = sizes_of(part->boxes);
  }
  optimizer.begin_load(incoming.counters, mine);
}

}  // namespace trireme
