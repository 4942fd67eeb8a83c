// Staging memory of the ranks of a host. Data between tensors that the other ranks cannot access
// passes through it, in pieces that stay in the caches.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/group.h>
#include <trireme/comm/host/host_team.h>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace trireme::comm {

// The memory of a tensor, described for one collective.
struct Cut {
  std::byte* data = nullptr;
  int64_t elements = 0, element_bytes = 1;
  std::byte* at(int64_t element) const { return data + element * element_bytes; }
};
Cut cut_of(const at::Tensor& tensor);
void copy_bytes(void* to, const void* from, int64_t bytes);
// target[first, last) = the reduction of sources[k][first, last), in ascending k. A mean divides
// by the number of sources.
void reduce_range(const at::Tensor& like, ReduceOp op, void* target,
                  const std::vector<const void*>& sources, int64_t first, int64_t last);

// Each rank has two halves, used in turn: while slower ranks still read one half, the other is
// filled. One thread at a time.
class ShmStaging {
 public:
  // A half stays in the second-level cache between the rank that writes it and the rank
  // that reads it.
  static constexpr int64_t kHalfBytes = 512 << 10;

  explicit ShmStaging(std::shared_ptr<HostTeam> team);  // COLLECTIVE.

  int rank() const { return team_->rank(); }
  int size() const { return team_->size(); }
  HostTeam& team() const { return *team_; }

  // The half of a rank for this round of the collective in progress. The half of round 0 is free
  // when the previous collective has returned. A later half is free when all ranks have passed a
  // barrier after they read it, two rounds before.
  std::byte* half(int of, int64_t round) const {
    return memory_->data() + (2 * static_cast<int64_t>(of) + (start_ + round) % 2) * kHalfBytes;
  }
  // Ends a collective of this many rounds. Other ranks may still be reading the half of
  // the last round.
  void leave(int64_t rounds) { start_ = (start_ + rounds) % 2; }

 private:
  std::shared_ptr<HostTeam> team_;
  std::shared_ptr<net::SharedMemory> memory_;
  int64_t start_ = 0;  // The same on all ranks.
};

}  // namespace trireme::comm
