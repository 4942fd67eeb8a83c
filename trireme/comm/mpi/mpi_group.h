// Ranks that mpirun started, with MPI as the backend: it uses the transports of the fabric
// (InfiniBand, shared memory) if there are any.
//
// MPI has no deadlines: operations are started without blocking, then polled until they are done
// or our deadline has come. MPI does not compare calls either: if ranks call different operations,
// the result is a time-out or MPI's error about a length. MPI_Abort is never called. One lock
// around every call serves all threads, so that MPI_THREAD_SERIALIZED is enough.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/comm/group.h>
#include <memory>
#include <string>
#include <vector>

namespace trireme::membership {
class Member;
}

namespace trireme::comm {

bool mpi_is_compiled_in();

// In a build without MPI the functions below throw Error(unsupported), except leave_mpi().

// COLLECTIVE over all workers of mpirun. Returns the text of worker 0, before there is any other
// connection. Starts MPI if that has not been done. Throws Error(invalid_argument) if mpirun
// belongs to another MPI than this build's, in which case every worker is a world of its own.
std::string hand_out_by_mpi(const std::string& text, int worker, int workers,
                            Milliseconds timeout);

// COLLECTIVE over `members`, which are listed by rank of the group. `timeout` applies to every
// wait. The tensors of a failed wait stay with MPI for good.
std::shared_ptr<Group> make_mpi_group(std::shared_ptr<membership::Member> member, int rank,
                                      std::vector<int> members, Milliseconds timeout);

// COLLECTIVE over all workers of mpirun, as the last call: mpirun treats an exit without it as a
// failure. Does nothing if MPI was never started. At the deadline it gives up silently.
void leave_mpi(Deadline deadline);

}  // namespace trireme::comm
