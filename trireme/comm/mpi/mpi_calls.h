// MPI in this process: started once, called by one thread at a time, asked in turns about what is
// under way.
#pragma once
#include <mpi.h>
#include <trireme/base/deadline.h>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

namespace trireme::comm {

// Starts MPI if that has not been done. Throws as hand_out_by_mpi().
void ensure_mpi(int worker, int workers);
bool mpi_is_running();
std::mutex& mpi_mutex();

// What MPI says of a return code. Empty: success.
std::string complaint_of(int code);
// Calls `function(arguments...)` with the lock held.
template <typename Function, typename... Arguments>
std::string call_mpi(Function function, Arguments... arguments) {
  const std::lock_guard lock(mpi_mutex());
  return complaint_of(function(arguments...));
}

// Asks until the request is done; in between `look()` may throw. MPI moves bytes only while it is
// asked.
struct MpiEnd {
  bool done = false;      // False: the deadline came first.
  std::string complaint;  // Of MPI.
  MPI_Status status;
};
MpiEnd await(MPI_Request& request, Deadline deadline, const std::function<void()>& look);

}  // namespace trireme::comm
