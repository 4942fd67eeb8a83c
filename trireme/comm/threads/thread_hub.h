// Where the ranks of a thread group meet: what each has posted, a barrier with a deadline, and mailboxes.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <trireme/base/deadline.h>
#include <tuple>
#include <vector>

namespace trireme::comm {

// What a rank brings to a collective: compared over ranks before a byte is read.
struct Posting {
  const char* operation = "";
  void* data = nullptr;
  int64_t elements = 0;
  int type = 0;       // at::ScalarType
  int detail = 0;     // ReduceOp or root.
  bool operator==(const Posting& other) const {
    return std::string_view(operation) == other.operation && elements == other.elements && type == other.type && detail == other.detail;
  }
};

class ThreadHub {
 public:
  ThreadHub(int size, Milliseconds timeout);
  int size() const { return size_; }
  Milliseconds timeout() const { return timeout_; }

  // All ranks have arrived. Spins briefly (only while there are as many cores as ranks), then blocks. Throws Error(timeout)
  // naming the ranks that are missing, or Error(aborted).
  void arrive_and_wait(int rank, const char* operation);
  // Posts this rank's part and waits for the others'; throws Error(invalid_argument) on every rank, naming two, if they differ.
  void meet(int rank, const Posting& posting);
  const Posting& posted(int rank) const { return postings_[rank]; }

  // Messages wait here by (from, to, tag), in order. `put` copies and returns at once.
  void put(int from, int to, int tag, std::vector<std::byte> message);
  std::vector<std::byte> take(int from, int to, int tag);

  void abort(int rank, const std::string& reason);  // Wakes everybody; the first reason stays.

 private:
  void throw_if_aborted() const;

  const int size_;
  const Milliseconds timeout_;
  const bool spin_;
  std::vector<Posting> postings_;
  std::vector<int64_t> arrivals_;  // Per rank, how many barriers it has reached; guarded by mutex_ when read by others.
  std::atomic<int> waiting_{0};
  std::atomic<uint64_t> phase_{0};
  std::atomic<bool> aborted_{false};
  std::string abort_reason_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<std::byte>>> mail_;
};

}  // namespace trireme::comm
