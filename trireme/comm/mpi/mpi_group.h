// Ranks that mpirun started, carried by MPI: it brings the fabric's own ways (InfiniBand, shared
// memory) where there are any.
//
// MPI knows no deadlines: operations are started without blocking and asked about until they are
// done or ours has come. It compares nothing either: ranks that call different operations end in a
// time-out, or in MPI's complaint about a length. MPI_Abort is never called. One lock around every
// call serves all threads: MPI_THREAD_SERIALIZED is enough.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/comm/group.h>
#include <memory>
#include <string>
#include <vector>

namespace trireme::launch {
class Member;
}

namespace trireme::comm {

bool mpi_is_compiled_in();

// The rest throws Error(unsupported) in a build without MPI.

// COLLECTIVE over all workers of mpirun: worker 0's text, before there is any other connection.
// Starts MPI if that has not been done; throws Error(invalid_argument) if the mpirun was another
// MPI's than this build's, which makes every worker a world of its own.
std::string hand_out_by_mpi(const std::string& text, int worker, int workers, Milliseconds timeout);

// COLLECTIVE over `members`, which are listed by rank of the group. `timeout` is that of every
// wait. A failed wait leaves its tensors to MPI for good.
std::shared_ptr<Group> make_mpi_group(std::shared_ptr<launch::Member> member, int rank,
                                      std::vector<int> members, Milliseconds timeout);

// COLLECTIVE over all workers of mpirun, as the last thing: mpirun takes an end without it for a
// failure. Does nothing if MPI was never started; gives up without a word at the deadline.
void leave_mpi(Deadline deadline);

}  // namespace trireme::comm
