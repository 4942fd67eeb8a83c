#include <trireme/train/progress.h>
#include <algorithm>

namespace trireme {

void Progress::count(plan::DataPosition next, bool updated, double loss) {
  position = next;
  if (!updated) {
    ++skipped_steps;
    return;
  }
  ++step;
  loss_history.push_back(loss);
}

int64_t Progress::last_epoch() const {
  return std::max<int64_t>(0, position.epoch - (position.consumed == 0 ? 1 : 0));
}

double Progress::mean_loss(int64_t steps) const {
  const auto tail = std::min<size_t>(loss_history.size(), std::max<int64_t>(1, steps));
  double mean = 0;
  for (size_t i = loss_history.size() - tail; i < loss_history.size(); ++i)
    mean += loss_history[i] / static_cast<double>(tail);
  return mean;
}

bool RunLength::is_done(const Progress& progress) const {
  return steps >= 0 ? progress.step >= steps : progress.position.epoch >= epochs;
}

bool RunLength::is_exceeded(const Progress& progress) const {
  return steps >= 0 ? progress.step > steps : progress.position.epoch > epochs;
}

}  // namespace trireme
