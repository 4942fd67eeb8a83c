// What a rank calls: it goes ahead of an operation's first bytes on every connection, so that ranks
// that call different things hear of it instead of taking each other's bytes for their own.
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
  barrier
};

// As it lies in the stream; all hosts of a job have one byte order (connect_mesh() sees to it).
struct Call {
  uint64_t sequence = 0;  // Of this group's operations.
  int64_t elements = 0;
  Operation operation = Operation::barrier;
  int32_t type = 0;       // at::ScalarType
  int32_t detail = 0;     // ReduceOp, or the root.
  int32_t algorithm = 0;  // Of the plan: ranks must follow the same.

  bool operator==(const Call&) const = default;
  std::string describe() const;  // "all_reduce with 10 elements (Float, sum)"
};
static_assert(sizeof(Call) == 32);

std::string_view to_string(Operation operation);

}  // namespace trireme::comm
