#include <trireme/data/load_meter.h>
#include <algorithm>
#include <cstddef>

namespace trireme::data {
namespace {

// The first window is short, because a loader that begins with too few threads should not do so
// for long.
constexpr double kSeconds = 0.3, kFirstSeconds = 0.15, kSecondsOfFewBatches = 1;
constexpr int kBatches = 4, kFewBatches = 2;
constexpr double kOtherWork = 4, kShort = 0.05;

}  // namespace

void LoadMeter::begin(const LoadTotals& totals, int batches_to_skip, int threads) {
  is_first_ = false;
  steps_.clear();
  seconds_ = 0;
  at_begin_ = totals;
  to_skip_ = batches_to_skip;
  threads_ = threads;
}

void LoadMeter::took(double own, double waited, const LoadTotals& totals) {
  if (to_skip_ > 0) {
    if (--to_skip_ == 0) at_begin_ = totals;
    return;
  }
  steps_.push_back({own, waited});
  seconds_ += own + waited;
}

// Threads that begin together end together, so a window has several batches of each.
bool LoadMeter::is_full() const {
  const auto steps = static_cast<int>(steps_.size());
  if (is_first_ && seconds_ >= kFirstSeconds && steps >= kFewBatches) return true;
  return (seconds_ >= kSeconds && steps >= std::max(kBatches, 2 * threads_)) ||
         (seconds_ >= kSecondsOfFewBatches && steps >= std::max(kFewBatches, threads_));
}

LoadWindow LoadMeter::read(const LoadTotals& totals) const {
  LoadWindow window;
  std::vector<double> own;
  for (const Step& step : steps_) own.push_back(step.own);
  if (own.empty()) return window;
  const auto middle = own.begin() + static_cast<std::ptrdiff_t>(own.size() / 2);
  std::nth_element(own.begin(), middle, own.end());
  const double most = *middle * kOtherWork + kShort;
  int count = 0;
  for (const Step& step : steps_) {
    if (step.own > most) continue;
    window.step += step.own + step.waited;
    window.waited += step.waited;
    ++count;
  }
  window.step /= std::max(1, count);
  window.waited /= std::max(1, count);
  if (const int64_t batches = totals.batches - at_begin_.batches; batches > 0) {
    window.load = (totals.load - at_begin_.load) / static_cast<double>(batches);
    window.computed = (totals.computed - at_begin_.computed) / static_cast<double>(batches);
  }
  return window;
}

}  // namespace trireme::data
