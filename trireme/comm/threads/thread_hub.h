// Where the ranks of a thread group meet: what each has posted, a barrier with a deadline, and mailboxes.
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
  std::string form;             // Element type, and the reduction or root: "Float, sum".
  std::shared_ptr<void> owner;  // Keeps `data` for others who still read it when this rank gives up.
  bool operator==(const Posting& other) const {
    return std::string_view(operation) == other.operation && elements == other.elements && form == other.form;
  }
};

class ThreadHub {
 public:
  ThreadHub(int size, Milliseconds timeout);
  int size() const { return size_; }
  Milliseconds timeout() const { return timeout_; }

  // All ranks have arrived. Spins briefly (only while there are as many cores as ranks), then blocks. Throws Error(timeout)
  // naming the ranks that are missing, or Error(aborted). A time-out ends the hub for all: who gave up reads and posts no more, so
  // whoever comes later would wait in vain, and gets the same error.
  void arrive_and_wait(int rank, const char* operation);
  // Posts this rank's part and waits for the others'; throws Error(invalid_argument) on every rank, naming two, if they differ.
  void meet(int rank, const Posting& posting);
  const Posting& posted(int rank) const { return postings_[rank]; }
  // Ends a collective: all have read what was posted. If it throws, what this rank posted stays readable for the others.
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
  void throw_if_ended() const;
  void end(ErrorCode code, const std::string& reason, const std::string& remedy);  // With mutex_ held.

  const int size_;
  const Milliseconds timeout_;
  const bool spin_;
  std::vector<Posting> postings_;
  std::vector<int64_t> arrivals_;  // Per rank, how many barriers it has reached; guarded by mutex_ when read by others.
  std::atomic<int> waiting_{0};
  std::atomic<uint64_t> phase_{0};
  std::atomic<bool> ended_{false};
  std::optional<Ending> ending_;  // Written once, before ended_.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<std::byte>>> mail_;
};

}  // namespace trireme::comm
