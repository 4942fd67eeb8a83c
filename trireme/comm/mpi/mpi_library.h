// The MPI of this machine, loaded at the first use. No programme is linked with it, so that
// Trireme also runs where there is no MPI.
#pragma once
#include <mpi.h>

namespace trireme::comm {

// The functions that Trireme calls, without MPI_ in front.
// clang-format off
#define TRIREME_MPI_FUNCTIONS(X) \
  X(Comm_create_group) X(Comm_group) X(Comm_rank) X(Comm_set_errhandler) X(Comm_size) \
  X(Error_string) X(Finalize) X(Finalized) X(Group_free) X(Group_incl) X(Iallgather) \
  X(Iallreduce) X(Ialltoall) X(Ialltoallv) X(Ibarrier) X(Ibcast) X(Igather) \
  X(Init_thread) X(Initialized) X(Irecv) X(Isend) X(Op_create) X(Test) X(Type_commit) \
  X(Type_contiguous)
// clang-format on

struct MpiLibrary {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name is declared.
#define TRIREME_MPI_MEMBER(name) decltype(&::MPI_##name) name;
  TRIREME_MPI_FUNCTIONS(TRIREME_MPI_MEMBER)
#undef TRIREME_MPI_MEMBER

  // In Open MPI the predefined handles are addresses in the library.
  MPI_Comm comm_world;
  MPI_Errhandler errors_return;
  MPI_Request request_null;
  MPI_Op op_null, sum;
  MPI_Datatype datatype_null, byte, character, integer, float32, float64, int32, int64, uint8;
};

// Any thread. The library stays loaded. Throws Error(unsupported) naming the file if it is not on
// this machine, or if a function is missing in it.
const MpiLibrary& mpi();
// True after the first successful call of mpi().
bool mpi_is_loaded();

}  // namespace trireme::comm
