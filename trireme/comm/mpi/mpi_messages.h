// Messages over MPI. A header with the form of a message goes ahead, and the receiver asks for the
// body when the header has come: MPI may write beyond a tensor that is too short.
#pragma once
#include <ATen/core/Tensor.h>
#include <mpi.h>
#include <trireme/comm/group.h>
#include <trireme/comm/wait_limits.h>
#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

namespace trireme::comm {

// Keeps the tensors of a failed wait for good, since MPI may still read and write them.
void leave_to_mpi(std::vector<at::Tensor> tensors);
// The count as MPI takes it. Throws Error(unsupported) naming what is counted if it is too large.
int in_range(int64_t count, const char* of_what);

// The messages of one rank. Any thread.
class MpiMessages : public std::enable_shared_from_this<MpiMessages> {
 public:
  MpiMessages(std::shared_ptr<const WaitLimits> limits, MPI_Comm ranks)
      : limits_(std::move(limits)), ranks_(ranks) {}

  WorkPtr send(at::Tensor tensor, int to, int tag);
  WorkPtr receive(at::Tensor tensor, int from, int tag);
  // Asks for the bodies of messages whose headers have come. Every wait of the group calls it
  // between polls, so that two ranks which both wait for their sends do not wait for each other.
  void advance();

 private:
  class SendWork;
  class ReceiveWork;
  struct Receipt;
  void begin_body(Receipt& receipt);

  const std::shared_ptr<const WaitLimits> limits_;
  const MPI_Comm ranks_;
  std::atomic<unsigned> sent_{0};  // The numbers of messages tell their bodies apart.
  std::mutex mutex_;
  std::list<std::shared_ptr<Receipt>> without_body_;
};

}  // namespace trireme::comm
