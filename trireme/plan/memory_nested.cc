#include <trireme/plan/memory_nested.h>

#include <algorithm>
#include <limits>

namespace trireme::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A segment is the blocks from s to t, both included, whose input is there and whose backward is
// to run when the gradient behind t is there (or the loss, if t is the last block). It begins in
// one of two ways:
// - `keep`: forward of s saves everything. Then the segment from s + 1, then the backward of s.
// - `checkpoint` at k: forward of s keeps the input of s, forward of s + 1 to k - 1 keeps nothing.
//   Then the segment from k to t, then the one from s to k - 1.
// These are the two cases of the theorem on persistent schedules. The bytes of a segment are those
// besides its input.
class NestedSizes {
 public:
  // All sizes are counted in units of `unit` bytes and rounded up.
  NestedSizes(const MemoryChain& chain, int64_t unit) : chain_(chain), unit_(unit) {}

  size_t blocks() const { return chain_.size(); }
  int64_t x(size_t i) const { return units(chain_.x[i]); }
  // Kept while the blocks behind s run.
  int64_t kept(size_t s) const { return units(chain_.block(s).inner_bytes) + x(s + 1); }
  // The peak of the forward and the backward of s, where s is kept.
  int64_t keep_peak(size_t s, size_t t) const {
    const BlockMemory& block = chain_.block(s);
    const bool holds_output = block.saves_output || s + 1 == blocks();
    return std::max(kept(s) + gradient(t) + units(block.forward_extra_bytes),
                    units(block.inner_bytes) + (holds_output ? x(s + 1) : 0) +
                        units(chain_.g[s + 1]) + units(chain_.g[s]) +
                        units(block.backward_extra_bytes));
  }
  // The peak of the forward of block i, of which nothing but its output stays.
  int64_t pass_peak(size_t i, size_t s, size_t t) const {
    return (i > s ? x(i) : 0) + x(i + 1) + gradient(t) +
           units(chain_.block(i).forward_extra_bytes);
  }
  const MemoryChain& chain() const { return chain_; }

 private:
  int64_t units(int64_t bytes) const { return bytes / unit_ + (bytes % unit_ > 0 ? 1 : 0); }
  // The gradient behind t is there while a segment runs forward again.
  int64_t gradient(size_t t) const { return t + 1 == blocks() ? 0 : units(chain_.g[t + 1]); }

  const MemoryChain& chain_;
  int64_t unit_;
};

// Appends the operations of a segment. `choose(s, t, units)` returns s for keep, or k.
template <typename Choose>
void write_segment(const NestedSizes& sizes, size_t s, size_t t, int64_t units,
                   const Choose& choose, std::vector<MemoryOperation>& operations) {
  const auto add = [&](MemoryKind kind, size_t i) {
    operations.push_back({kind, static_cast<int>(i)});
  };
  const size_t choice = choose(s, t, units);
  if (choice == s) {
    add(MemoryKind::forward_all, s);
    if (s + 1 == sizes.blocks()) operations.push_back({MemoryKind::loss, -1});
    if (s < t) write_segment(sizes, s + 1, t, units - sizes.kept(s), choose, operations);
    add(MemoryKind::backward, s);
    return;
  }
  add(MemoryKind::forward_checkpoint, s);
  for (size_t i = s + 1; i < choice; ++i) add(MemoryKind::forward_nothing, i);
  write_segment(sizes, choice, t, units - sizes.x(choice), choose, operations);
  write_segment(sizes, s, choice - 1, units, choose, operations);
}

class NestedSearch {
 public:
  NestedSearch(const NestedSizes& sizes, int64_t units)
      : sizes_(sizes), units_(units), width_(static_cast<size_t>(units) + 1) {
    const size_t n = sizes.blocks();
    seconds_.assign(n * (n + 1) / 2 * width_, kNever);
    for (size_t i = 0; i < n; ++i)
      forward_until_.push_back(forward_until_.back() + sizes.chain().block(i).forward_seconds);
    for (size_t length = 1; length <= n; ++length)
      for (size_t s = 0; s + length <= n; ++s) fill(s, s + length - 1);
  }

  double best() const { return at(0, sizes_.blocks() - 1, units_); }
  size_t choose(size_t s, size_t t, int64_t units) const {
    size_t choice = s;
    double best = keep_seconds(s, t, units);
    int64_t peak = 0;
    for (size_t k = s + 1; k <= t; ++k) {
      peak = std::max(peak, sizes_.pass_peak(k - 1, s, t));
      const double seconds = peak <= units ? checkpoint_seconds(s, k, t, units) : kNever;
      if (seconds < best) best = seconds, choice = k;
    }
    return choice;
  }

 private:
  size_t index(size_t s, size_t t) const { return (t * (t + 1) / 2 + s) * width_; }
  double at(size_t s, size_t t, int64_t units) const {
    return units < 0 ? kNever : seconds_[index(s, t) + static_cast<size_t>(units)];
  }
  double keep_seconds(size_t s, size_t t, int64_t units) const {
    if (sizes_.keep_peak(s, t) > units) return kNever;
    const BlockMemory& block = sizes_.chain().block(s);
    const double own = block.forward_seconds + block.backward_seconds;
    return s == t ? own : own + at(s + 1, t, units - sizes_.kept(s));
  }
  double checkpoint_seconds(size_t s, size_t k, size_t t, int64_t units) const {
    return forward_until_[k] - forward_until_[s] + at(k, t, units - sizes_.x(k)) +
           at(s, k - 1, units);
  }
  void fill(size_t s, size_t t) {
    double* const best = &seconds_[index(s, t)];
    for (int64_t m = 0; m <= units_; ++m) best[m] = keep_seconds(s, t, m);
    int64_t peak = 0;
    for (size_t k = s + 1; k <= t; ++k) {
      peak = std::max(peak, sizes_.pass_peak(k - 1, s, t));
      for (int64_t m = std::max(peak, sizes_.x(k)); m <= units_; ++m)
        best[m] = std::min(best[m], checkpoint_seconds(s, k, t, m));
    }
  }

  const NestedSizes& sizes_;
  int64_t units_;
  size_t width_;
  std::vector<double> seconds_;  // [segment][units]
  std::vector<double> forward_until_ = {0};
};

// As many units as make a table of moderate size and time.
int64_t units_for(size_t blocks) {
  const auto n = static_cast<double>(blocks);
  return static_cast<int64_t>(
      std::clamp(std::min(8e6 / (n * n), 4e8 / (n * n * n)), 32.0, 2048.0));
}

}  // namespace

std::optional<std::vector<MemoryOperation>> fastest_nested(const MemoryChain& chain,
                                                           int64_t budget,
                                                           int64_t keep_all_bytes) {
  const int64_t most = units_for(chain.size());
  const int64_t unit = std::max<int64_t>(1, keep_all_bytes / most + 1);
  const int64_t units = (std::min(budget, keep_all_bytes) - chain.x[0]) / unit;
  if (budget < chain.x[0]) return {};
  const NestedSizes sizes(chain, unit);
  const NestedSearch search(sizes, units);
  if (search.best() == kNever) return {};
  std::vector<MemoryOperation> operations;
  write_segment(
      sizes, 0, chain.size() - 1, units,
      [&](size_t s, size_t t, int64_t m) { return search.choose(s, t, m); }, operations);
  return operations;
}

LeastNested least_nested(const MemoryChain& chain) {
  const NestedSizes sizes(chain, 1);
  const size_t n = chain.size();
  // [s * n + t]
  std::vector<int64_t> least(n * n);
  std::vector<size_t> choices(n * n);
  for (size_t length = 1; length <= n; ++length)
    for (size_t s = 0; s + length <= n; ++s) {
      const size_t t = s + length - 1;
      int64_t best = sizes.keep_peak(s, t);
      if (s < t) best = std::max(best, sizes.kept(s) + least[(s + 1) * n + t]);
      choices[s * n + t] = s;
      int64_t peak = 0;
      for (size_t k = s + 1; k <= t; ++k) {
        peak = std::max(peak, sizes.pass_peak(k - 1, s, t));
        const int64_t bytes =
            std::max({peak, sizes.x(k) + least[k * n + t], least[s * n + k - 1]});
        if (bytes < best) best = bytes, choices[s * n + t] = k;
      }
      least[s * n + t] = best;
    }
  LeastNested result{chain.x[0] + least[n - 1], {}};
  write_segment(
      sizes, 0, n - 1, 0, [&](size_t s, size_t t, int64_t) { return choices[s * n + t]; },
      result.operations);
  return result;
}

}  // namespace trireme::plan
