#include <fmt/format.h>
#include <sched.h>
#include <trireme/base/error.h>
#include <trireme/comm/mpi/mpi_calls.h>
#include <trireme/comm/mpi/mpi_group.h>
#include <thread>
#include <vector>

namespace trireme::comm {
namespace {

// After this time a wait is for a late rank, and may sleep between polls.
constexpr auto kEager = std::chrono::milliseconds(20);
constexpr auto kNap = std::chrono::microseconds(50);

}  // namespace

std::mutex& mpi_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string complaint_of(int code) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  mpi().Error_string(code, text, &length);
  return std::string(text, static_cast<size_t>(length));
}

bool mpi_is_running() {
  if (!mpi_is_loaded()) return false;
  const std::lock_guard lock(mpi_mutex());
  int started = 0, ended = 0;
  mpi().Initialized(&started);
  mpi().Finalized(&ended);
  return started && !ended;
}

void ensure_mpi(int worker, int workers) {
  mpi();  // A programme may have started MPI by itself.
  if (!mpi_is_running()) {
    int provided = MPI_THREAD_SINGLE;
    const std::string complaint =
        call_mpi(mpi().Init_thread, nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    if (!complaint.empty()) throw Error(ErrorCode::io, "comm", "MPI does not start: " + complaint);
    if (provided < MPI_THREAD_SERIALIZED)
      throw Error(ErrorCode::unsupported, "comm", "only the first thread can call this MPI",
                  "an MPI with MPI_THREAD_SERIALIZED");
  }
  int rank = -1, size = 0;
  call_mpi(mpi().Comm_rank, mpi().comm_world, &rank);
  call_mpi(mpi().Comm_size, mpi().comm_world, &size);
  call_mpi(mpi().Comm_set_errhandler, mpi().comm_world, mpi().errors_return);
  if (rank != worker || size != workers)
    throw Error(
        ErrorCode::invalid_argument, "comm",
        fmt::format("MPI reports rank {} of {}, but the environment reports worker {} of {}", rank,
                    size, worker, workers),
        "the mpirun of the MPI with which Trireme was built");
}

bool poll(const std::function<bool()>& done, Deadline deadline,
          const std::function<void()>& look) {
  for (const auto eager_until = Deadline::Clock::now() + kEager; !done();) {
    look();
    if (deadline.expired()) return done();
    // The rank for which this wait polls may need the core.
    if (Deadline::Clock::now() < eager_until)
      ::sched_yield();
    else
      std::this_thread::sleep_for(kNap);
  }
  return true;
}

MpiEnd await(MPI_Request& request, Deadline deadline, const std::function<void()>& look) {
  MpiEnd end;
  const auto over = [&] {
    int done = 0;
    end.complaint = call_mpi(mpi().Test, &request, &done, &end.status);
    end.done = done != 0;
    return end.done || !end.complaint.empty();
  };
  poll(over, deadline, look);
  return end;
}

std::string hand_out_by_mpi(const std::string& text, int worker, int workers,
                            Milliseconds timeout) {
  ensure_mpi(worker, workers);
  const Deadline deadline = Deadline::after(timeout);
  std::vector<char> bytes(text.begin(), text.end());
  int length = static_cast<int>(bytes.size());
  const auto broadcast = [&](void* data, int count, MPI_Datatype type) {
    MPI_Request request;
    std::string complaint =
        call_mpi(mpi().Ibcast, data, count, type, 0, mpi().comm_world, &request);
    const MpiEnd end =
        complaint.empty() ? await(request, deadline, [] {}) : MpiEnd{true, complaint, {}};
    if (!end.done)
      throw Error(ErrorCode::timeout, "comm",
                  "worker 0 did not send the coordinator's address through MPI in time",
                  "see the output of worker 0");
    if (!end.complaint.empty())
      throw Error(ErrorCode::io, "comm",
                  "MPI cannot hand out the coordinator's address: " + end.complaint);
  };
  broadcast(&length, 1, mpi().integer);
  bytes.resize(static_cast<size_t>(length));
  broadcast(bytes.data(), length, mpi().character);
  return {bytes.begin(), bytes.end()};
}

void leave_mpi(Deadline deadline) {
  if (!mpi_is_running()) return;
  // MPI_Finalize may wait for ranks that never come. After this barrier all ranks are about to
  // call it.
  MPI_Request request;
  if (!call_mpi(mpi().Ibarrier, mpi().comm_world, &request).empty()) return;
  const MpiEnd end = await(request, deadline, [] {});
  if (end.done && end.complaint.empty()) call_mpi(mpi().Finalize);
}

}  // namespace trireme::comm
