// The meeting point of the ranks of a thread group: their postings, a barrier with a
// deadline, and their messages.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/comm/threads/thread_mail.h>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::comm {

// The call of one rank in a collective. The ranks compare their calls before they read a byte.
struct Posting {
  const char* operation = "";
  void* data = nullptr;
  int64_t elements = 0;
  std::string_view type;    // The type of its elements: "Float".
  std::string_view detail;  // The reduction: "sum".
  int root = -1;            // The root, if the operation has one.
  // Keeps `data` alive for other ranks that still read it when this rank gives up.
  std::shared_ptr<void> owner;
  bool operator==(const Posting& other) const {
    return std::string_view(operation) == other.operation && elements == other.elements &&
           type == other.type && detail == other.detail && root == other.root;
  }
};

class ThreadHub {
 public:
  ThreadHub(int size, Milliseconds timeout);
  int size() const { return size_; }
  Milliseconds timeout() const { return timeout_; }

  // Waits until all ranks have arrived. It first spins, soon yielding the core to other threads
  // (at once if there are fewer cores than ranks), then blocks. Throws Error(timeout) naming the
  // missing ranks, or Error(aborted). A time-out ends the hub for all ranks: the rank that gave up
  // reads and posts no more. A rank that comes later would wait in vain, so it gets
  // the same error.
  void arrive_and_wait(int rank, const char* operation);
  // Posts this rank's call and waits for the others'. Throws Error(invalid_argument) on every
  // rank, naming two ranks, if the calls differ.
  void meet(int rank, const Posting& posting);
  const Posting& posted(int rank) const { return postings_[rank]; }
  // Call it when no rank reads this rank's posting any more. Without this call the posting stays
  // readable for the others.
  void forget(int rank) { postings_[rank].owner.reset(); }
  // Ends a collective: waits until all ranks have read the postings, then forgets this rank's.
  void part(int rank, const char* operation);

  ThreadMail& mail() { return mail_; }

  void abort(int rank, const std::string& reason);  // Wakes all ranks; the first reason stays.

 private:
  struct Ending {
    ErrorCode code;
    std::string reason, remedy;
  };
  struct alignas(64) Arrivals {  // One cache line per rank.
    std::atomic<uint64_t> count{0};
  };
  [[noreturn]] void throw_ending() const;
  void throw_if_ended() const;
  bool end_unless_passed(uint64_t phase, Ending ending);  // Call it with mutex_ held.
  bool wait_until_passed(uint64_t phase);
  std::string missing_beside(int rank) const;

  const int size_;
  const Milliseconds timeout_;
  const bool enough_cores_;
  std::vector<Posting> postings_;
  std::vector<Arrivals> arrivals_;  // [rank]: the number of barriers that it has reached.
  // The barrier: the number of barriers passed (from bit 32 on), whether the hub has ended (bit
  // 31), and the number of ranks that have arrived at the next barrier. One word holds all of it,
  // so that a barrier is either passed by all ranks or ended for all.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::optional<Ending> ending_;  // It is written once, before the bit is set.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ThreadMail mail_;
};

}  // namespace trireme::comm
