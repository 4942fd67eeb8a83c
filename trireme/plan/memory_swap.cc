#include <trireme/plan/memory_decisions.h>

#include <algorithm>
#include <array>
#include <limits>

namespace trireme::plan {
namespace {

constexpr size_t kMostCombinations = 4096;  // Up to six blocks with four decisions.
constexpr size_t kMostImprovedBlocks = 32;
constexpr size_t kMostThoroughBlocks = 12;
constexpr size_t kMostPricedBlocks = 64;
constexpr std::array kPrices = {0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0};

// The largest value in [from, to] for which `fits`, which holds for `from` and for no value behind
// one for which it does not.
template <typename Fits>
size_t last_that(size_t from, size_t to, Fits fits) {
  while (from < to) {
    const size_t middle = from + (to - from + 1) / 2;
    if (fits(middle))
      from = middle;
    else
      to = middle - 1;
  }
  return from;
}

// Gives copies time, as far as there is memory for it.
class CopyTimes {
 public:
  CopyTimes(const MemoryChain& chain, const MemoryDecisions& decisions, int64_t budget)
      : chain_(chain),
        decisions_(decisions),
        budget_(budget),
        times_(SwapTimes::in_turn(chain.size())) {}

  MemoryUse use() const { return simulate(chain_, operations_of(decisions_, times_)); }
  const SwapTimes& times() const { return times_; }

  // The first blocks first. A copy gets no more time than makes the step faster, or with
  // `generous` all that it can have.
  void give_out(bool generous) {
    for (size_t i = 0; i < chain_.size(); ++i)
      if (decisions_[i] == MemoryDecision::swap)
        give(times_.out_before[i], chain_.size(), generous);
  }
  // The last blocks first. A copy does not begin before those of later blocks, which are needed
  // first.
  void give_in(bool generous) {
    size_t most = chain_.size() - 1;
    for (size_t i = chain_.size(); i-- > 0;)
      if (decisions_[i] == MemoryDecision::swap) {
        give(times_.in_from[i], std::max(most, times_.in_from[i]), generous);
        most = times_.in_from[i];
      }
  }

 private:
  void give(size_t& time, size_t most, bool generous) {
    const size_t least = time;
    const auto fits = [&](size_t value) {
      time = value;
      return use().peak_bytes <= budget_;
    };
    most = last_that(least, most, fits);
    time = most;
    if (generous) return;
    const double seconds = use().seconds * (1 + 1e-12);
    const auto is_slower = [&](size_t value) {
      time = value;
      return use().seconds > seconds;
    };
    // The first value that is not slower than the last one.
    time = least;
    if (!is_slower(least)) return;
    time = std::min(most, last_that(least, most, is_slower) + 1);
  }

  const MemoryChain& chain_;
  const MemoryDecisions& decisions_;
  int64_t budget_;
  SwapTimes times_;
};

bool is_faster(const MemorySchedule& a, const std::optional<MemorySchedule>& b) {
  return !b || a.use.seconds < b->use.seconds * (1 - 1e-12);
}

std::optional<MemorySchedule> best_of_all(const MemoryChain& chain,
                                          const AllowedDecisions& allowed, int64_t budget) {
  std::optional<MemorySchedule> best;
  MemoryDecisions decisions(chain.size());
  const auto fill = [&](auto& self, size_t i) -> void {
    if (i == chain.size()) {
      auto found = schedule(chain, decisions, budget);
      if (found && is_faster(*found, best)) best = std::move(found);
      return;
    }
    for (size_t d = 0; d < allowed[i].size(); ++d) {
      decisions[i] = static_cast<MemoryDecision>(d);
      if (allowed[i][d]) self(self, i + 1);
    }
  };
  fill(fill, 0);
  return best;
}

size_t combinations(const AllowedDecisions& allowed) {
  size_t product = 1;
  for (const auto& of_block : allowed)
    if (product <= kMostCombinations)
      product *= static_cast<size_t>(std::count(of_block.begin(), of_block.end(), true));
  return product;
}

// Changes one decision at a time as long as that is faster.
void improve(const MemoryChain& chain, const AllowedDecisions& allowed, int64_t budget,
             MemorySchedule& best) {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < chain.size(); ++i)
      for (size_t d = 0; d < allowed[i].size(); ++d) {
        MemoryDecisions decisions = best.decisions;
        decisions[i] = static_cast<MemoryDecision>(d);
        if (!allowed[i][d] || decisions == best.decisions) continue;
        auto found = schedule(chain, decisions, budget);
        if (!found || !is_faster(*found, best)) continue;
        best = std::move(*found);
        changed = true;
      }
  }
}

}  // namespace

SwapTimes SwapTimes::beside_next(size_t blocks) {
  SwapTimes times;
  for (size_t i = 0; i < blocks; ++i) {
    times.out_before.push_back(std::min(i + 2, blocks));
    times.in_from.push_back(std::min(i + 1, blocks - 1));
  }
  return times;
}

SwapTimes SwapTimes::in_turn(size_t blocks) {
  SwapTimes times;
  for (size_t i = 0; i < blocks; ++i) {
    times.out_before.push_back(i + 1);
    times.in_from.push_back(i);
  }
  return times;
}

std::vector<MemoryOperation> operations_of(const MemoryDecisions& decisions,
                                           const SwapTimes& times) {
  const size_t blocks = decisions.size();
  // The swapped blocks in the order in which their copies out end, and those in begin.
  std::vector<size_t> out, in;
  for (size_t i = 0; i < blocks; ++i)
    if (decisions[i] == MemoryDecision::swap) out.push_back(i);
  in.assign(out.rbegin(), out.rend());
  std::stable_sort(out.begin(), out.end(),
                   [&](size_t a, size_t b) { return times.out_before[a] < times.out_before[b]; });
  std::stable_sort(in.begin(), in.end(),
                   [&](size_t a, size_t b) { return times.in_from[a] > times.in_from[b]; });
  auto next_out = out.begin(), next_in = in.begin();
  std::vector<MemoryOperation> operations;
  const auto add = [&](MemoryKind kind, size_t i) {
    operations.push_back({kind, static_cast<int>(i)});
  };
  for (size_t i = 0; i <= blocks; ++i) {
    for (; next_out != out.end() && times.out_before[*next_out] == i; ++next_out)
      add(MemoryKind::wait_out, *next_out);
    if (i == blocks) break;
    add(decisions[i] == MemoryDecision::recompute ? MemoryKind::forward_checkpoint
                                                  : MemoryKind::forward_all,
        i);
    if (decisions[i] == MemoryDecision::swap) add(MemoryKind::swap_out, i);
    if (decisions[i] == MemoryDecision::compress) add(MemoryKind::compress, i);
  }
  operations.push_back({MemoryKind::loss, -1});
  for (size_t i = blocks; i-- > 0;) {
    for (; next_in != in.end() && times.in_from[*next_in] == i; ++next_in)
      add(MemoryKind::swap_in, *next_in);
    if (decisions[i] == MemoryDecision::swap) add(MemoryKind::wait_in, i);
    if (decisions[i] == MemoryDecision::compress) add(MemoryKind::decompress, i);
    if (decisions[i] == MemoryDecision::recompute) add(MemoryKind::forward_all, i);
    add(MemoryKind::backward, i);
  }
  return operations;
}

std::optional<MemorySchedule> schedule(const MemoryChain& chain, const MemoryDecisions& decisions,
                                       int64_t budget) {
  MemorySchedule best{decisions, operations_of(decisions, SwapTimes::in_turn(chain.size())), {}};
  best.use = simulate(chain, best.operations);
  if (best.use.peak_bytes > budget) return {};
  const int ways = chain.size() <= kMostThoroughBlocks ? 4 : 1;
  for (int way = 0; way < ways && best.use.waiting_seconds > 0; ++way) {
    const bool in_first = way % 2 > 0, generous = way / 2 > 0;
    CopyTimes copies(chain, decisions, budget);
    if (in_first) copies.give_in(generous);
    copies.give_out(generous);
    copies.give_in(generous);
    const MemoryUse use = copies.use();
    if (use.seconds >= best.use.seconds) continue;
    best.operations = operations_of(decisions, copies.times());
    best.use = use;
  }
  return best;
}

std::optional<MemorySchedule> best_mix(const MemoryChain& chain, const AllowedDecisions& allowed,
                                       int64_t budget) {
  if (combinations(allowed) <= kMostCombinations) return best_of_all(chain, allowed, budget);
  std::optional<MemorySchedule> best;
  // Long chains have enough blocks to mix, so fewer prices do.
  const size_t stride = chain.size() > kMostPricedBlocks ? 3 : 1;
  for (const bool in_turn : {false, true})
    for (size_t p = 0; p < kPrices.size(); p += stride) {
      const auto decisions =
          decide(chain, allowed, budget, {.price = kPrices[p], .copies_take_turns = in_turn});
      if (!decisions) break;
      auto found = schedule(chain, *decisions, budget);
      if (found && is_faster(*found, best)) best = std::move(found);
    }
  if (best && chain.size() <= kMostImprovedBlocks) improve(chain, allowed, budget, *best);
  return best;
}

}  // namespace trireme::plan
