// The element types and reductions of MPI. We supply those that MPI does not have
// or defines differently.
#pragma once
#include <ATen/core/Tensor.h>
#include <mpi.h>
#include <trireme/comm/group.h>

namespace trireme::comm {

// MPI must be running. Made at the first use, and kept.
MPI_Datatype mpi_type_of(at::ScalarType type);
// For a mean this is the sum. In max and min NaN wins, as in torch; MPI leaves that open. float16
// and bfloat16 are added in float32.
MPI_Op mpi_op_of(at::ScalarType type, ReduceOp op);

}  // namespace trireme::comm
