#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <trireme/base/cbor.h>
#include <trireme/base/log.h>
#include <trireme/train/engine_state.h>
#include <algorithm>
#include <cstring>

namespace trireme {
namespace {

std::string own_name(int rank, const std::string& name) {
  return fmt::format("rank{}/{}", rank, name);
}

bool fits(const std::map<std::string, at::Tensor>& saved, const std::string& name,
          const at::Tensor& tensor) {
  const auto found = saved.find(name);
  return found != saved.end() && found->second.sizes() == tensor.sizes() &&
         found->second.scalar_type() == tensor.scalar_type();
}

// Returns true if rank 0 found the own tensors of every rank.
bool all_fit(const EngineState& state, const std::map<std::string, at::Tensor>& saved,
             int saved_ranks) {
  for (const auto& [name, tensor] : state.own)
    for (int rank = 0; rank < saved_ranks; ++rank)
      if (!fits(saved, own_name(rank, name), tensor)) return false;
  return saved_ranks > 0;
}

void scatter(const std::vector<NamedTensor>& own, const std::map<std::string, at::Tensor>& saved,
             Group& group) {
  for (const auto& [name, tensor] : own) {
    if (group.rank() > 0) {
      const at::Tensor mine = at::empty_like(tensor, at::MemoryFormat::Contiguous);
      group.recv(mine, 0);
      tensor.copy_(mine);
      continue;
    }
    for (int rank = 1; rank < group.size(); ++rank)
      group.send(saved.at(own_name(rank, name)).contiguous(), rank);
    tensor.copy_(saved.at(own_name(0, name)));
  }
}

void divide_evenly(const std::vector<NamedTensor>& own,
                   const std::map<std::string, at::Tensor>& saved, int saved_ranks, Group& group) {
  for (const auto& [name, tensor] : own) {
    at::Tensor value = at::zeros_like(tensor, at::MemoryFormat::Contiguous);
    if (group.rank() == 0) {
      const int summed = name.starts_with("error/") ? saved_ranks : 1;
      for (int rank = 0; rank < summed; ++rank) value.add_(saved.at(own_name(rank, name)));
      if (name.starts_with("error/")) value.div_(group.size());
    }
    group.broadcast(value, 0);
    tensor.copy_(value);
  }
}

}  // namespace

std::string shared_name(const std::string& name) { return "engine/" + name; }

std::vector<NamedTensor> shared_in_file(const EngineState& state) {
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : state.shared) named.push_back({shared_name(name), tensor});
  return named;
}

std::vector<NamedTensor> own_in_file(const EngineState& state, int rank) {
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : state.own) named.push_back({own_name(rank, name), tensor});
  return named;
}

std::vector<NamedTensor> collect_own(const EngineState& state, Group& group) {
  std::vector<NamedTensor> all;
  for (const auto& [name, tensor] : state.own) {
    const at::Tensor mine = tensor.detach().contiguous().view({-1});
    at::Tensor everybodys;
    if (group.rank() == 0) everybodys = at::empty({group.size() * mine.numel()}, mine.options());
    group.gather(mine, everybodys, 0);
    if (group.rank() > 0) continue;
    for (int rank = 0; rank < group.size(); ++rank)
      all.push_back(
          {own_name(rank, name),
           everybodys.narrow(0, rank * mine.numel(), mine.numel()).view(tensor.sizes())});
  }
  return all;
}

bool belongs_to_engine(const std::string& name) {
  if (name.starts_with("engine/")) return true;
  const size_t slash = name.find('/');
  return name.starts_with("rank") && slash > 4 && slash != std::string::npos &&
         std::all_of(name.begin() + 4, name.begin() + static_cast<std::ptrdiff_t>(slash),
                     [](char c) { return c >= '0' && c <= '9'; });
}

std::set<std::string> restore(EngineState& state, const std::map<std::string, at::Tensor>& saved,
                              int saved_ranks, Group& group) {
  const at::NoGradGuard no_grad;
  Json found = {{"own", all_fit(state, saved, saved_ranks)},
                {"ranks", saved_ranks},
                {"shared", Json::array()}};
  for (const auto& [name, tensor] : state.shared)
    if (fits(saved, shared_name(name), tensor)) found["shared"].push_back(name);
  found = broadcast_value(group, found);
  const std::set<std::string> shared = found["shared"];
  for (const auto& [name, tensor] : state.shared) {
    if (!shared.contains(name)) continue;
    const at::Tensor value = group.rank() == 0
                                 ? saved.at(shared_name(name)).contiguous()
                                 : at::empty_like(tensor, at::MemoryFormat::Contiguous);
    group.broadcast(value, 0);
    tensor.copy_(value);
  }
  if (state.own.empty()) return shared;
  if (!found["own"].get<bool>()) {
    if (group.rank() == 0)
      log_warning(
          "the checkpoint has no state of this compression: gradients that earlier steps held "
          "back "
          "are dropped");
  } else if (found["ranks"] == group.size()) {
    scatter(state.own, saved, group);
  } else {
    divide_evenly(state.own, saved, found["ranks"], group);
  }
  return shared;
}

Json broadcast_value(Group& group, const Json& value) {
  if (group.size() == 1) return value;
  std::vector<std::uint8_t> bytes = Json::to_cbor(value);
  at::Tensor length = at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong);
  group.broadcast(length, 0);
  at::Tensor content = at::empty({length.item<int64_t>()}, at::kByte);
  if (group.rank() == 0) std::memcpy(content.mutable_data_ptr(), bytes.data(), bytes.size());
  group.broadcast(content, 0);
  const auto* data = static_cast<const uint8_t*>(content.const_data_ptr());
  return read_cbor({data, static_cast<size_t>(content.numel())}, "train");
}

}  // namespace trireme
