// MPI in this process: it is started once, called by one thread at a time, and polled for the
// operations in progress.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/comm/mpi/mpi_library.h>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

namespace trireme::comm {

// Starts MPI if that has not been done. Throws as hand_out_by_mpi() does.
void ensure_mpi(int worker, int workers);
// False also if MPI was never loaded.
bool mpi_is_running();
std::mutex& mpi_mutex();

// MPI's message for a return code; empty for success.
std::string complaint_of(int code);
// Calls `function(arguments...)` with the lock held.
template <typename Function, typename... Arguments>
std::string call_mpi(Function function, Arguments... arguments) {
  const std::lock_guard lock(mpi_mutex());
  return complaint_of(function(arguments...));
}

// Polls until `done()`, and returns whether it is before the deadline. Between polls `look()` may
// throw.
bool poll(const std::function<bool()>& done, Deadline deadline, const std::function<void()>& look);
// Polls until the request is done; between polls `look()` may throw. MPI moves bytes only while it
// is polled.
struct MpiEnd {
  bool done = false;      // False if the deadline came first.
  std::string complaint;  // MPI's error message.
  MPI_Status status;
};
MpiEnd await(MPI_Request& request, Deadline deadline, const std::function<void()>& look);

}  // namespace trireme::comm
