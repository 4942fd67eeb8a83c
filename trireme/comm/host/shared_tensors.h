// Tensors that every rank of a host can access directly.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/host/host_team.h>
#include <memory>
#include <optional>
#include <vector>

namespace trireme::comm {

// The location of a tensor on every rank.
struct SharedPlace {
  std::shared_ptr<net::SharedMemory> memory;
  int number = 0;                 // The number of the call that made the memory.
  int64_t offset = 0;             // In bytes, from the start of its tensors.
  std::vector<std::byte*> begin;  // [rank]
};

// The shared tensors of one rank; one thread at a time.
class SharedTensors {
 public:
  explicit SharedTensors(std::shared_ptr<HostTeam> team) : team_(std::move(team)) {}

  // COLLECTIVE. Returns an uninitialised tensor for each rank. The memory is freed with the last
  // tensor that uses it.
  at::Tensor make(at::IntArrayRef sizes, at::ScalarType type);
  // The place of a tensor that make() returned on this rank, or of a contiguous part of it. Empty
  // for any other tensor.
  std::optional<SharedPlace> find(const at::Tensor& tensor);

 private:
  // The tensors of one call: one block per rank, `each` bytes apart.
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
