#include <trireme/parallel/updates_past_engine.h>
#include <trireme/parallel/value_sample.h>
#include <utility>

namespace trireme {
namespace {

// A loop may write parameters between two backward() of a step, and write them back (Foret et al.
// 2021, "Sharpness-Aware Minimization"). It does so a few times.
constexpr int kWritesWithoutStep = 16;

}  // namespace

void UpdatesPastEngine::look() {
  const uint64_t now = sample_of(parameters_);
  if (std::exchange(is_known_, true) && now != sample_) ++count_;
  sample_ = now;
}

void UpdatesPastEngine::forget() {
  is_known_ = false;
  count_ = 0;
}

bool UpdatesPastEngine::are_too_many() const { return count_ >= kWritesWithoutStep; }

}  // namespace trireme
