// Counts the work of a stage, for the report of a run.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace trireme::data {

struct StageMeter {
  explicit StageMeter(std::string its_name) : name(std::move(its_name)) {}
  const std::string name;
  std::atomic<int64_t> nanoseconds{0}, samples{0}, bytes{0};
};

// Measures every 16th sample of a thread: reading the clock twice takes as long as a cheap stage.
class StageTimer {
 public:
  static constexpr int64_t kEvery = 16;
  explicit StageTimer(bool is_measured) : is_measured_(is_measured) {
    if (is_measured_) begin_ = std::chrono::steady_clock::now();
  }
  // The time since the last call, or since the start, was spent in this stage, which gave bytes()
  // to the next one. Only a sample that is measured calls that function.
  template <typename Bytes>
  void spent_in(StageMeter& meter, const Bytes& bytes) {
    if (!is_measured_) return;
    const auto now = std::chrono::steady_clock::now();
    meter.nanoseconds.fetch_add((now - begin_).count() * kEvery, std::memory_order_relaxed);
    meter.samples.fetch_add(kEvery, std::memory_order_relaxed);
    meter.bytes.fetch_add(bytes() * kEvery, std::memory_order_relaxed);
    begin_ = now;
  }

 private:
  const bool is_measured_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace trireme::data
