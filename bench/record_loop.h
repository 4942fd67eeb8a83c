// The loop that all readers of records run: each record's bytes are copied into the memory of a
// batch, epoch after epoch.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace bench {

// The memory of a batch, which the next one overwrites.
class BatchMemory {
 public:
  void put(const void* bytes, size_t count) {
    if (used_ + count > memory_.size()) memory_.resize(2 * (used_ + count));
    std::memcpy(memory_.data() + used_, bytes, count);
    used_ += count;
  }
  // Called behind the last field of a record.
  void end_record() {
    ++records_;
    if (records_ % kBatch == 0) forget_batch();
  }
  int64_t records() const { return records_; }
  int64_t bytes() const { return bytes_ + static_cast<int64_t>(used_); }

 private:
  static constexpr int64_t kBatch = 256;
  void forget_batch() {
    bytes_ += static_cast<int64_t>(used_);
    used_ = 0;
  }
  std::vector<char> memory_;
  size_t used_ = 0;
  int64_t records_ = 0, bytes_ = 0;
};

// Calls `epoch(memory, e)`, which puts all records of epoch e, until so many seconds have passed.
// Epoch 0 is not counted: it takes the page faults. Prints one JSON object: the records of a
// second, and the records and bytes of an epoch, to compare the result with another loop's.
template <typename Epoch>
void run_epochs(double seconds, Epoch epoch) {
  BatchMemory first, memory;
  epoch(first, int64_t{0});
  const auto begin = std::chrono::steady_clock::now();
  double taken = 0;
  for (int64_t e = 1; taken < seconds; ++e) {
    epoch(memory, e);
    taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  std::printf("{\"samples_per_second\": %.1f, \"records\": %lld, \"bytes\": %lld}\n",
              static_cast<double>(memory.records()) / taken,
              static_cast<long long>(first.records()), static_cast<long long>(first.bytes()));
}

}  // namespace bench
