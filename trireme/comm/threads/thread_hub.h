// Where the ranks of a thread group meet: what each has posted, a barrier with a deadline, and
// mailboxes.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace trireme::comm {

// What a rank brings to a collective: compared over ranks before a byte is read.
struct Posting {
  const char* operation = "";
  void* data = nullptr;
  int64_t elements = 0;
  std::string_view type;    // Of its elements: "Float".
  std::string_view detail;  // The reduction: "sum".
  int root = -1;            // Where there is one.
  std::shared_ptr<void>
      owner;  // Keeps `data` for others who still read it when this rank gives up.
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

  // All ranks have arrived. Spins briefly, soon giving the core to whoever wants it (at once where
  // there are fewer cores than ranks), then blocks. Throws Error(timeout) naming the ranks that are
  // missing, or Error(aborted). A time-out ends the hub for all: who gave up reads and posts no
  // more, so whoever comes later would wait in vain, and gets the same error.
  void arrive_and_wait(int rank, const char* operation);
  // Posts this rank's part and waits for the others'; throws Error(invalid_argument) on every rank,
  // naming two, if they differ.
  void meet(int rank, const Posting& posting);
  const Posting& posted(int rank) const { return postings_[rank]; }
  // Nobody reads what this rank posted any more. Unless it is called, what was posted stays
  // readable for the others.
  void forget(int rank) { postings_[rank].owner.reset(); }
  // Ends a collective: all have read what was posted, which is then forgotten.
  void part(int rank, const char* operation);

  // Messages wait here by (from, to, tag), in order. `put` copies and returns at once.
  void put(int from, int to, int tag, std::vector<std::byte> message);
  std::vector<std::byte> take(int from, int to, int tag);

  void abort(int rank, const std::string& reason);  // Wakes everybody; the first reason stays.

 private:
  struct Ending {
    ErrorCode code;
    std::string reason, remedy;
  };
  struct alignas(64) Arrivals {  // A cache line each.
    std::atomic<uint64_t> count{0};
  };
  [[noreturn]] void throw_ending() const;
  void throw_if_ended() const;
  bool end_unless_passed(uint64_t phase, Ending ending);  // With mutex_ held.
  bool wait_until_passed(uint64_t phase);
  std::string missing_beside(int rank) const;

  const int size_;
  const Milliseconds timeout_;
  const bool enough_cores_;
  std::vector<Posting> postings_;
  std::vector<Arrivals> arrivals_;  // By rank: how many barriers it has reached.
  // The barrier: how many were passed (from bit 32 on), whether the hub has ended (bit 31), how
  // many ranks have arrived at the next. In one word, so that a barrier is either passed by all or
  // ended for all.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::optional<Ending> ending_;  // Written once, before the bit.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<std::byte>>> mail_;
};

}  // namespace trireme::comm
