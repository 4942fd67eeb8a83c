// Tensors that every rank of a host reaches where they lie.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/host/host_team.h>
#include <memory>
#include <optional>
#include <vector>

namespace trireme::comm {

// Where a tensor lies on every rank.
struct SharedPlace {
  std::shared_ptr<net::SharedMemory> memory;
  int number = 0;                 // Of the call that made the memory.
  int64_t offset = 0;             // In bytes, from where its tensors begin.
  std::vector<std::byte*> begin;  // [rank]
};

// One rank's; one thread at a time.
class SharedTensors {
 public:
  explicit SharedTensors(std::shared_ptr<HostTeam> team) : team_(std::move(team)) {}

  // COLLECTIVE. A tensor for each rank, uninitialised. The memory goes with the last tensor that
  // looks at it.
  at::Tensor make(at::IntArrayRef sizes, at::ScalarType type);
  // Of a tensor that make() returned on this rank, or a contiguous part of it; empty for any other.
  std::optional<SharedPlace> find(const at::Tensor& tensor);

 private:
  // Tensors of one call: one block a rank, `each` bytes apart.
  struct Blocks {
    std::weak_ptr<net::SharedMemory> memory;
    int64_t each;
    int number;
  };
  std::shared_ptr<HostTeam> team_;
  std::vector<Blocks> blocks_;
  int made_ = 0;
};

}  // namespace trireme::comm
