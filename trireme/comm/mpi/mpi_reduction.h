// Element types and reductions as MPI knows them; those it does not know, or knows otherwise, are
// ours.
#pragma once
#include <ATen/core/Tensor.h>
#include <mpi.h>
#include <trireme/comm/group.h>

namespace trireme::comm {

// MPI must be running. Made when first asked for, and kept.
MPI_Datatype mpi_type_of(at::ScalarType type);
// mean: the sum. In max and min NaN wins, as in torch, which MPI leaves open; float16 and bfloat16
// are added in float32.
MPI_Op mpi_op_of(at::ScalarType type, ReduceOp op);

}  // namespace trireme::comm
