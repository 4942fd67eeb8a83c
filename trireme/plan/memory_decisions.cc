#include <trireme/plan/memory_decisions.h>

#include <algorithm>
#include <limits>
#include <tuple>

namespace trireme::plan {
namespace {

constexpr size_t kMostHeldStates = 65'536;

// The result of the decisions for the blocks before one.
struct HeldState {
  int64_t bytes = 0;  // Held from their forward to their backward, without the block's input.
  double seconds = 0;
  MemoryDecision last = MemoryDecision::recompute;  // The decision for the block before.
  size_t before = 0;                                // The state that this one continues.
};

// The cases of `last` that differ for the next block.
enum class Border { plain, output_held, copying };

class DecisionSearch {
 public:
  DecisionSearch(const MemoryChain& chain, int64_t budget, const DecisionCosts& costs)
      : chain_(chain), budget_(budget), costs_(costs) {}

  std::optional<MemoryDecisions> run(const AllowedDecisions& allowed) {
    std::vector<std::vector<HeldState>> levels = {{HeldState{}}};
    for (size_t i = 0; i < chain_.size(); ++i) {
      std::vector<HeldState> next;
      for (size_t s = 0; s < levels[i].size(); ++s)
        for (size_t d = 0; d < allowed[i].size(); ++d) {
          if (!allowed[i][d]) continue;
          const auto decision = static_cast<MemoryDecision>(d);
          if (need(i, levels[i][s], decision) > budget_) continue;
          next.push_back(after(i, levels[i][s], decision));
          next.back().before = s;
        }
      levels.push_back(best_of(std::move(next), i));
      if (levels.back().empty()) return {};
    }
    const auto fastest =
        std::min_element(levels.back().begin(), levels.back().end(),
                         [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    MemoryDecisions decisions(chain_.size());
    const HeldState* state = &*fastest;
    for (size_t i = chain_.size(); i-- > 0; state = &levels[i][state->before])
      decisions[i] = state->last;
    return decisions;
  }

 private:
  Border border(size_t i, MemoryDecision last) const {
    if (i == 0) return Border::plain;
    if (last == MemoryDecision::swap)
      return costs_.copies_take_turns ? Border::plain : Border::copying;
    // A block that is computed again holds its output only after the next block's backward.
    return last == MemoryDecision::keep && chain_.block(i - 1).saves_output ? Border::output_held
                                                                            : Border::plain;
  }

  // The peak of the block's own forward and backward.
  int64_t need(size_t i, const HeldState& before, MemoryDecision decision) const {
    const BlockMemory& block = chain_.block(i);
    const Border at = border(i, before.last);
    int64_t base = before.bytes;
    if (at == Border::copying) {
      const BlockMemory& other = chain_.block(i - 1);
      base += other.inner_bytes + (other.saves_input ? chain_.x[i - 1] : 0);
    }
    const bool is_last = i + 1 == chain_.size();
    const bool recompute = decision == MemoryDecision::recompute;
    const int64_t x = chain_.x[i], y = chain_.x[i + 1], gradient = chain_.g[i + 1];
    const bool holds_input = block.saves_input || recompute || at == Border::output_held ||
                             (at == Border::copying && chain_.block(i - 1).saves_output);
    const int64_t backward = base + (holds_input ? x : 0) + block.inner_bytes +
                             (block.saves_output || is_last ? y : 0) + gradient + chain_.g[i] +
                             block.backward_extra_bytes;
    const int64_t forward = base + x + y + block.forward_extra_bytes;
    if (recompute)
      return std::max(backward, forward + block.inner_bytes + gradient + (is_last ? y : 0));
    int64_t most = std::max(backward, forward + block.inner_bytes);
    // The loss comes right behind the last forward.
    if (decision == MemoryDecision::compress)
      most = std::max(
          {most, base + (holds_input ? x : 0) + block.inner_bytes + y + chain_.compressed(i),
           backward - chain_.g[i] - block.backward_extra_bytes + chain_.compressed(i)});
    return most;
  }

  HeldState after(size_t i, const HeldState& before, MemoryDecision decision) const {
    const BlockMemory& block = chain_.block(i);
    HeldState state{before.bytes, before.seconds, decision, 0};
    if (border(i, before.last) == Border::output_held || decision == MemoryDecision::recompute ||
        (decision == MemoryDecision::keep && block.saves_input))
      state.bytes += chain_.x[i];
    if (decision == MemoryDecision::keep) state.bytes += block.inner_bytes;
    if (decision == MemoryDecision::compress) state.bytes += chain_.compressed(i);
    if (decision == MemoryDecision::compress || decision == MemoryDecision::swap)
      state.bytes += chain_.saved(i) - chain_.moved(i);
    if (!costs_.nothing_takes_time) state.seconds += seconds(i, decision);
    return state;
  }

  double seconds(size_t i, MemoryDecision decision) const {
    const auto bytes = static_cast<double>(chain_.moved(i));
    switch (decision) {
      case MemoryDecision::keep: return 0;
      case MemoryDecision::recompute: return chain_.block(i).forward_seconds;
      case MemoryDecision::swap:
        return costs_.price * bytes *
               (1 / chain_.options.out_bytes_per_second + 1 / chain_.options.in_bytes_per_second);
      case MemoryDecision::compress: return 2 * bytes * chain_.options.compress_seconds_per_byte;
    }
    return 0;
  }

  // The states that no other one of the same border beats in both bytes and seconds.
  std::vector<HeldState> best_of(std::vector<HeldState> states, size_t i) const {
    const auto key = [&](const HeldState& s) {
      return std::tuple(border(i + 1, s.last), s.bytes, s.seconds);
    };
    std::stable_sort(states.begin(), states.end(),
                     [&](const auto& a, const auto& b) { return key(a) < key(b); });
    std::vector<HeldState> best;
    for (const HeldState& state : states)
      if (best.empty() || border(i + 1, best.back().last) != border(i + 1, state.last) ||
          state.seconds < best.back().seconds)
        best.push_back(state);
    if (best.size() <= kMostHeldStates) return best;
    std::vector<HeldState> thinned;
    for (size_t s = 0; s < best.size(); s += best.size() / kMostHeldStates + 1)
      thinned.push_back(best[s]);
    return thinned;
  }

  const MemoryChain& chain_;
  int64_t budget_;
  DecisionCosts costs_;
};

}  // namespace

std::optional<MemoryDecisions> decide(const MemoryChain& chain, const AllowedDecisions& allowed,
                                      int64_t budget, const DecisionCosts& costs) {
  return DecisionSearch(chain, budget, costs).run(allowed);
}

int64_t least_budget(const MemoryChain& chain, const AllowedDecisions& allowed) {
  int64_t too_little = -1, enough = std::numeric_limits<int64_t>::max() / 2;
  while (enough - too_little > 1) {
    const int64_t middle = too_little + (enough - too_little) / 2;
    const DecisionCosts none = {.nothing_takes_time = true, .copies_take_turns = true};
    (decide(chain, allowed, middle, none) ? enough : too_little) = middle;
  }
  return enough;
}

}  // namespace trireme::plan
