#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <trireme/parallel/agreement.h>
#include <trireme/parallel/boxes.h>
#include <trireme/train/parameter_hash.h>
#include <trireme/train/saver_slices.h>
#include <trireme/train/state_transfer.h>

namespace trireme {
namespace {

using Boxes = std::vector<std::pair<int, plan::TensorSlice>>;  // With the rank that has each.

// COLLECTIVE. The slices of each parameter on all ranks that are not empty; of equal ones the
// lowest rank's.
std::map<std::string, Boxes> boxes_of(const StateView& parameters, Group& group) {
  Json mine = Json::array();
  for (const StateEntry& entry : parameters)
    if (entry.slice.elements() > 0)
      mine.push_back({entry.slice.tensor, entry.slice.from, entry.slice.sizes, entry.slice.shape});
  std::map<std::string, Boxes> boxes;
  const std::vector<Json> all = gather_values(group, mine);
  for (int rank = 0; rank < group.size(); ++rank)
    for (const Json& each : all[static_cast<size_t>(rank)]) {
      plan::TensorSlice slice{each[0], each[3], each[1], each[2]};
      Boxes& known = boxes[slice.tensor];
      const auto is_same = [&](const auto& box) { return box.second == slice; };
      if (std::ranges::none_of(known, is_same)) known.emplace_back(rank, std::move(slice));
    }
  return boxes;
}

}  // namespace

std::string hash_of_parameters(const StateView& state, Group& group) {
  StateView parameters;
  for (const StateEntry& entry : state)
    if (entry.kind == StateKind::parameter) parameters.push_back(entry);
  if (!slices_of(parameters, group).any())
    return sha256_of(tensors_of(parameters, StateKind::parameter));

  const at::NoGradGuard no_grad;
  const std::map<std::string, Boxes> boxes = boxes_of(parameters, group);
  TensorHash hash;
  std::string last;
  for (const StateEntry& entry : parameters) {
    const std::string& name = entry.slice.tensor;
    if (name == last) continue;  // Another slice of the same tensor.
    last = name;
    at::Tensor whole;
    if (group.rank() == 0) whole = at::empty(entry.slice.shape, entry.tensor.options());
    const auto known = boxes.find(name);  // A tensor without elements has no boxes.
    for (const auto& [rank, slice] : known == boxes.end() ? Boxes() : known->second) {
      at::Tensor part;
      if (rank == group.rank())
        for (const StateEntry& own : parameters)
          if (own.slice == slice) part = own.tensor.detach().contiguous();
      if (group.rank() == 0 && rank != 0) {
        part = at::empty(slice.sizes, entry.tensor.options());
        group.recv(as_bytes(part), rank);
      } else if (rank != 0 && rank == group.rank()) {
        group.send(as_bytes(part), 0);
      }
      if (whole.defined()) part_of(whole, slice).copy_(part.view(slice.sizes));
    }
    if (whole.defined()) hash.add({name, whole});
  }
  return broadcast_text(group, group.rank() == 0 ? hash.hex() : std::string(), 0);
}

}  // namespace trireme
