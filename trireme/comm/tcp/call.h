// The description of a rank's call. It precedes the first bytes of an operation on every
// connection, so that ranks with different calls notice it instead of mixing up
// each other's bytes.
#pragma once
#include <trireme/comm/group.h>
#include <cstdint>
#include <string>

namespace trireme::comm {

enum class Operation : uint32_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  gather,
  barrier,
  all_to_all
};

// The layout in the stream. All hosts of a job have one byte order; connect_mesh() checks that.
struct Call {
  uint64_t sequence = 0;  // The number of this operation in its group.
  int64_t elements = 0;
  Operation operation = Operation::barrier;
  int32_t type = 0;       // at::ScalarType
  int32_t detail = 0;     // ReduceOp, the root, or 1 if the blocks of an all_to_all are equal.
  int32_t algorithm = 0;  // The plan's algorithm, the same on all ranks.

  bool operator==(const Call&) const = default;
  std::string describe() const;  // "all_reduce with 10 elements (Float, sum)"
};
static_assert(sizeof(Call) == 32);

std::string_view to_string(Operation operation);

}  // namespace trireme::comm
