#include <trireme/membership/unfinished_steps.h>

#include <fmt/format.h>
#include <algorithm>

namespace trireme::membership {

void UnfinishedSteps::lost(int64_t step, int64_t process, const std::string& where,
                           const std::string& how, bool is_seen) {
  committed(step - 1);
  Step& it = steps_[step];
  it = {it.times + 1, process, where, how, is_seen ? how : it.seen};
}

void UnfinishedSteps::ended(int64_t process, const std::string& how) {
  for (auto& [number, step] : steps_)
    if (step.process == process) step.how = step.seen = how;
}

void UnfinishedSteps::committed(int64_t step) {
  steps_.erase(steps_.begin(), steps_.upper_bound(step));
}

std::string UnfinishedSteps::verdict() const {
  const auto found = std::ranges::find_if(
      steps_, [](const auto& each) { return each.second.times >= kMostTimes; });
  if (found == steps_.end()) return {};
  const auto& [number, step] = *found;
  const bool knows_more = !step.seen.empty() && step.seen != step.how;
  return fmt::format(
      "step {} is never finished: {} times a worker was lost before it was committed, the "
      "last time {}: {}{}",
      number, step.times, step.where, step.how,
      knows_more ? fmt::format(" (an earlier time: {})", step.seen) : "");
}

Json UnfinishedSteps::to_json() const {
  Json steps = Json::array();
  for (const auto& [number, step] : steps_)
    steps.push_back({number, step.times, step.process, step.where, step.how, step.seen});
  return steps;
}

UnfinishedSteps UnfinishedSteps::from_json(const Json& text) {
  UnfinishedSteps unfinished;
  for (const Json& step : text)
    unfinished.steps_[step.at(0)] = {step.at(1), step.at(2), step.at(3), step.at(4), step.at(5)};
  return unfinished;
}

}  // namespace trireme::membership
