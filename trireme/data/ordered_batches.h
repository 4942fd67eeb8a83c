// Batches of a part of a source in its order, which threads read ahead: for evaluations.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/data/announcements.h>
#include <trireme/data/batch.h>
#include <trireme/data/source.h>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

namespace trireme::data {

class Prefetch;

struct ReadAhead {
  int threads = 0;  // 0: the caller reads.
  int batches = 0;  // The batches that are ready or being read; at least one for each thread.
  // For all of them. A batch that a thread is reading counts twice, as for a loader. Where not one
  // fits, the caller reads.
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
  Milliseconds timeout{600'000};  // The time that next() waits for a batch of a thread.
  int rank = 0, world_size = 1;   // The rank in the log lines of the threads.
};

// One thread uses it. The destructor waits for the calls that are running; it starts no further
// one.
class OrderedBatches {
 public:
  // The samples [first, last), in batches of `batch`.
  struct Part {
    int64_t first = 0, last = 0, batch = 1;
  };
  // Reads the samples of these draws. Several threads call it at once.
  using Read = std::function<Batch(const Draws& draws)>;
  OrderedBatches(std::shared_ptr<const Source> source, Part part, ReadAhead ahead, Read read);
  ~OrderedBatches();
  OrderedBatches(const OrderedBatches&) = delete;

  bool has_next() const { return next_ < part_.last; }
  // has_next() must be true. Throws what `read` throws for this batch, and Error(timeout).
  Batch next();

 private:
  Draws draws_at(int64_t first) const;
  Batch read_now(int64_t first);
  void announce_ahead();
  void fill();
  Batch take();

  const std::shared_ptr<const Source> source_;
  const Part part_;
  const ReadAhead ahead_;
  const Read read_;
  int64_t next_, scheduled_, announced_;  // The first samples of the next batches.
  int64_t largest_ = 0;  // The bytes of the largest batch so far; 0: none was read.
  Announcements announcements_;
  std::unique_ptr<Prefetch> prefetch_;  // The last member: its threads use the others.
};

}  // namespace trireme::data
