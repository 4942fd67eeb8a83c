// Chains of blocks, and searches over all plans for them, for the tests of MemoryPlan.
#pragma once
#include <trireme/plan/memory_plan.h>
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace trireme::plan {

// A chain of small random sizes. Seconds are whole, so that sums of them are exact.
inline std::vector<BlockMemory> random_chain(std::mt19937& random, int blocks) {
  const auto draw = [&](int least, int most) {
    return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
  };
  std::vector<BlockMemory> chain;
  for (int i = 0; i < blocks; ++i) {
    BlockMemory block;
    block.name = "block" + std::to_string(i);
    block.forward_seconds = draw(1, 9);
    block.backward_seconds = draw(1, 9);
    block.inner_bytes = draw(0, 30);
    block.input_bytes = i == 0 ? draw(0, 9) : chain.back().output_bytes;
    block.output_bytes = draw(1, 9);
    block.forward_extra_bytes = draw(0, 4);
    block.backward_extra_bytes = draw(0, 4);
    chain.push_back(block);
  }
  return chain;
}

// The least seconds of any persistent schedule within a budget, by Dijkstra's search over the
// states of a step; infinite if there is none. It shares no code with the plan. All blocks save
// their inputs and not their outputs; gradients count.
class EverySchedule {
 public:
  explicit EverySchedule(const std::vector<BlockMemory>& chain) : chain_(chain) {
    for (const BlockMemory& block : chain) x_.push_back(block.input_bytes);
    x_.push_back(chain.back().output_bytes);
    g_ = x_;
    g_[0] = 0;
  }

  double least_seconds(int64_t budget) {
    budget_ = budget;
    seconds_.clear();
    queue_ = {};
    State start;
    start.values.assign(x_.size(), kAbsent);
    start.values[0] = kRunning;
    start.saved.assign(chain_.size(), false);
    offer(start, 0);
    while (!queue_.empty()) {
      const auto [seconds, state] = queue_.top();
      queue_.pop();
      if (state.gradient == 0) return seconds;
      if (seconds > seconds_[state]) continue;
      for (size_t i = 0; i < chain_.size(); ++i) {
        forward(state, seconds, i);
        backward(state, seconds, i);
      }
      loss(state, seconds);
    }
    return std::numeric_limits<double>::infinity();
  }

 private:
  enum Value : char { kAbsent, kRunning, kHeld };
  struct State {
    std::vector<Value> values;
    std::vector<bool> saved;
    int gradient = -1;
    bool operator<(const State& o) const {
      return std::tie(values, saved, gradient) < std::tie(o.values, o.saved, o.gradient);
    }
  };

  int64_t live(const State& state) const {
    int64_t bytes = state.gradient < 0 ? 0 : g_[static_cast<size_t>(state.gradient)];
    for (size_t i = 0; i < x_.size(); ++i) bytes += state.values[i] == kAbsent ? 0 : x_[i];
    for (size_t i = 0; i < chain_.size(); ++i) bytes += state.saved[i] ? chain_[i].inner_bytes : 0;
    return bytes;
  }
  void offer(const State& state, double seconds) {
    if (live(state) > budget_) return;
    const auto [known, is_new] = seconds_.try_emplace(state, seconds);
    if (!is_new && known->second <= seconds) return;
    known->second = seconds;
    queue_.push({seconds, state});
  }
  void forward(const State& state, double seconds, size_t i) {
    if (state.values[i] == kAbsent || state.saved[i] || state.values[i + 1] != kAbsent) return;
    if (state.gradient >= 0 && static_cast<int>(i) >= state.gradient) return;
    const int64_t peak = live(state) + x_[i + 1] + chain_[i].forward_extra_bytes;
    State after = state;
    if (state.gradient != static_cast<int>(i) + 1) after.values[i + 1] = kRunning;
    const double then = seconds + chain_[i].forward_seconds;
    if (peak > budget_) return;
    if (state.values[i] == kRunning) {
      after.values[i] = kAbsent;
      offer(after, then);
    }
    after.values[i] = kHeld;
    offer(after, then);
    after.saved[i] = true;
    if (peak + chain_[i].inner_bytes <= budget_) offer(after, then);
  }
  void loss(const State& state, double seconds) {
    if (state.gradient >= 0 || state.values.back() == kAbsent) return;
    State after = state;
    after.gradient = static_cast<int>(chain_.size());
    offer(after, seconds);
  }
  void backward(const State& state, double seconds, size_t i) {
    if (!state.saved[i] || state.gradient != static_cast<int>(i) + 1) return;
    if (live(state) + g_[i] + chain_[i].backward_extra_bytes > budget_) return;
    State after = state;
    after.gradient = static_cast<int>(i);
    after.saved[i] = false;
    after.values[i] = after.values[i + 1] = kAbsent;
    offer(after, seconds + chain_[i].backward_seconds);
  }

  using Entry = std::pair<double, State>;
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const { return a.first > b.first; }
  };
  const std::vector<BlockMemory>& chain_;
  std::vector<int64_t> x_, g_;
  int64_t budget_ = 0;
  std::map<State, double> seconds_;
  std::priority_queue<Entry, std::vector<Entry>, Later> queue_;
};

}  // namespace trireme::plan
