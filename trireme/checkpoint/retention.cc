#include <trireme/checkpoint/retention.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace trireme::checkpoint {
namespace {

std::set<int64_t> best_of(const Measured& checkpoints, int count, bool higher_is_better) {
  std::vector<std::pair<double, int64_t>> ranked;
  for (const auto& [step, value] : checkpoints)
    if (value && std::isfinite(*value))
      ranked.emplace_back(higher_is_better ? -*value : *value, step);
  std::sort(ranked.begin(), ranked.end());
  std::set<int64_t> best;
  for (const auto& [value, step] : ranked)
    if (static_cast<int>(best.size()) < count) best.insert(step);
  return best;
}

}  // namespace

std::vector<int64_t> outdated(const Measured& checkpoints, int64_t saved,
                              const RetentionOptions& options) {
  const std::set<int64_t> best =
      best_of(checkpoints, options.keep_best, options.best_by.higher_is_better);
  std::vector<int64_t> steps;
  int kept = 0;
  for (auto newest = checkpoints.rbegin(); newest != checkpoints.rend(); ++newest) {
    const int64_t step = newest->first;
    if (step > saved || ++kept <= options.keep) continue;
    if (options.keep_every > 0 && step % options.keep_every == 0) continue;
    if (!best.contains(step)) steps.push_back(step);
  }
  return steps;
}

}  // namespace trireme::checkpoint
