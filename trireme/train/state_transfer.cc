#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <trireme/base/cbor.h>
#include <trireme/base/log.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/boxes.h>
#include <trireme/train/state_transfer.h>
#include <algorithm>
#include <cstring>

namespace trireme {
namespace {

using Saved = std::map<std::string, at::Tensor>;

// An optimizer has made its tensors for what was saved. All others must have the saved form.
bool fits(const Saved& saved, const StateEntry& entry, int rank) {
  const auto found = saved.find(name_in_file(entry, rank));
  if (found == saved.end()) return false;
  const at::Tensor& value = found->second;
  const auto whole = plan::TensorSlice::whole({}, entry.slice.shape);
  if (entry.kind == StateKind::optimizer) return value.numel() == whole.elements();
  return value.sizes() == at::IntArrayRef(entry.slice.shape) &&
         value.scalar_type() == entry.tensor.scalar_type();
}

std::vector<const StateEntry*> common_entries(const StateView& view) {
  std::vector<const StateEntry*> common;
  for (const StateEntry& entry : view)
    if (!is_of_model(entry.kind) && !is_of_one_rank(entry.kind)) common.push_back(&entry);
  return common;
}

StateView own_entries(const StateView& view) {
  StateView own;
  for (const StateEntry& entry : view)
    if (is_of_one_rank(entry.kind)) own.push_back(entry);
  return own;
}

// Returns true if rank 0 found the own tensors of every rank.
bool all_fit(const StateView& own, const SavedTensors& saved) {
  for (const StateEntry& entry : own)
    for (int rank = 0; rank < saved.ranks; ++rank)
      if (!fits(saved.by_name, entry, rank)) return false;
  return saved.ranks > 0;
}

void fill_common(const StateEntry& entry, const Saved& saved, Group& group) {
  const plan::TensorSlice& slice = entry.slice;
  const at::Tensor value = group.rank() == 0 ? saved.at(name_in_file(entry, 0))
                                                   .to(entry.tensor.scalar_type())
                                                   .reshape(slice.shape)
                                                   .contiguous()
                                             : at::empty(slice.shape, entry.tensor.options());
  broadcast_tensors(group, {{entry.slice.tensor, value}});
  // Each rank takes its slice.
  entry.tensor.copy_(part_of(value, slice).reshape(entry.tensor.sizes()));
}

void scatter(const StateView& own, const Saved& saved, Group& group) {
  for (const StateEntry& entry : own) {
    const at::Tensor& tensor = entry.tensor;
    if (group.rank() > 0) {
      const at::Tensor mine = at::empty_like(tensor, at::MemoryFormat::Contiguous);
      group.recv(as_bytes(mine), 0);
      tensor.copy_(mine);
      continue;
    }
    for (int rank = 1; rank < group.size(); ++rank)
      group.send(as_bytes(saved.at(name_in_file(entry, rank)).contiguous()), rank);
    tensor.copy_(saved.at(name_in_file(entry, 0)));
  }
}

void divide_evenly(const StateView& own, const Saved& saved, int saved_ranks, Group& group) {
  for (const StateEntry& entry : own) {
    const bool is_sum = entry.kind == StateKind::residual;
    at::Tensor value = at::zeros_like(entry.tensor, at::MemoryFormat::Contiguous);
    if (group.rank() == 0) {
      for (int rank = 0; rank < (is_sum ? saved_ranks : 1); ++rank)
        value.add_(saved.at(name_in_file(entry, rank)));
      if (is_sum) value.div_(group.size());
    }
    group.broadcast(as_bytes(value), 0);
    entry.tensor.copy_(value);
  }
}

void tell_missing(const std::vector<const StateEntry*>& common,
                  const std::set<std::string>& found) {
  for (const StateEntry* const entry : common)
    if (entry->kind == StateKind::common && !found.contains(name_in_file(*entry, 0)))
      log_warning("the checkpoint lacks '{}': it starts anew", entry->slice.tensor);
}

}  // namespace

std::vector<NamedTensor> own_in_file(const StateView& view, int rank) {
  std::vector<NamedTensor> named;
  for (const StateEntry& entry : own_entries(view))
    named.push_back({name_in_file(entry, rank), entry.tensor});
  return named;
}

std::vector<NamedTensor> collect_own(const StateView& view, Group& group) {
  std::vector<NamedTensor> all;
  for (const StateEntry& entry : own_entries(view)) {
    const at::Tensor mine = as_bytes(entry.tensor.detach().contiguous());
    at::Tensor everybodys;
    if (group.rank() == 0) everybodys = at::empty({group.size() * mine.numel()}, mine.options());
    group.gather(mine, everybodys, 0);
    if (group.rank() > 0) continue;
    for (int rank = 0; rank < group.size(); ++rank)
      all.push_back(
          {name_in_file(entry, rank), everybodys.narrow(0, rank * mine.numel(), mine.numel())
                                          .view(entry.tensor.scalar_type())
                                          .view(entry.tensor.sizes())});
  }
  return all;
}

std::set<std::string> fill(const StateView& view, const SavedTensors& saved, bool only_common,
                           Group& group) {
  const at::NoGradGuard no_grad;
  const std::vector<const StateEntry*> common = common_entries(view);
  const StateView own = only_common ? StateView() : own_entries(view);
  Json found = {{"own", all_fit(own, saved)}, {"ranks", saved.ranks}, {"common", Json::array()}};
  for (const StateEntry* const entry : common)
    if (fits(saved.by_name, *entry, 0)) found["common"].push_back(name_in_file(*entry, 0));
  found = broadcast_value(group, found);
  const std::set<std::string> names = found["common"];
  for (const StateEntry* const entry : common)
    if (names.contains(name_in_file(*entry, 0))) fill_common(*entry, saved.by_name, group);
  if (group.rank() == 0) tell_missing(common, names);
  if (own.empty()) return names;
  if (!found["own"].get<bool>()) {
    if (group.rank() == 0)
      log_warning(
          "the checkpoint lacks tensors that each rank keeps, such as '{}': they start anew, and "
          "gradients that compression held back in earlier steps are dropped",
          own.front().slice.tensor);
  } else if (found["ranks"] == group.size()) {
    scatter(own, saved.by_name, group);
  } else {
    divide_evenly(own, saved.by_name, found["ranks"], group);
  }
  return names;
}

Json broadcast_value(Group& group, const Json& value, int root) {
  if (group.size() == 1) return value;
  std::string bytes;
  if (group.rank() == root) Json::to_cbor(value, bytes);
  bytes = broadcast_text(group, bytes, root);
  return read_cbor({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "train");
}

std::vector<Json> gather_values(Group& group, const Json& value) {
  if (group.size() == 1) return {value};
  const std::vector<std::uint8_t> bytes = Json::to_cbor(value);
  const at::Tensor length = at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong);
  at::Tensor lengths = at::empty({group.size()}, at::kLong);
  group.all_gather(length, lengths);
  // All ranks give as many bytes as the longest value has.
  const int64_t longest = lengths.max().item<int64_t>();
  at::Tensor mine = at::zeros({longest}, at::kByte),
             all = at::empty({group.size() * longest}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), bytes.data(), bytes.size());
  group.all_gather(mine, all);
  const auto* data = static_cast<const uint8_t*>(all.const_data_ptr());
  std::vector<Json> values;
  for (int rank = 0; rank < group.size(); ++rank, data += longest)
    values.push_back(
        read_cbor({data, static_cast<size_t>(lengths[rank].item<int64_t>())}, "train"));
  return values;
}

}  // namespace trireme
