#include <trireme/base/clones.h>
#include <trireme/parallel/shared/content_watch.h>
#include <array>
#include <cstring>

namespace trireme::shared {
namespace {

// The method is XXH3's: products of neighbouring words under keys that depend on the place. Words
// that change in the same way, or that swap places, thus do not cancel each other.
constexpr int kLanes = 16;
constexpr uint32_t kKeyStep = 0x9e3779b1;

TRIREME_CLONES
void add_words(const uint32_t* low, int64_t blocks, const uint32_t* keys, uint64_t* sums) {
  uint64_t sum[kLanes];
  uint32_t key[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    sum[lane] = sums[lane];
    key[lane] = keys[lane];
  }
  for (int64_t block = 0; block < blocks; ++block) {
    const uint32_t* const words = low + block * 2 * kLanes;
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint32_t one = words[lane] + key[lane], other = words[kLanes + lane] ^ key[lane];
      sum[lane] += static_cast<uint64_t>(one) * other;
      key[lane] += kKeyStep;
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) sums[lane] = sum[lane];
}

}  // namespace

uint64_t checksum(std::span<const std::byte> bytes) {
  constexpr size_t kBlock = 2 * kLanes * sizeof(uint32_t);
  std::array<uint32_t, kLanes> keys;
  std::array<uint64_t, kLanes> sums;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    keys[lane] = (lane + 1) * 0x85ebca77U;
    sums[lane] = lane;
  }
  const size_t blocks = bytes.size() / kBlock, rest = bytes.size() % kBlock;
  add_words(reinterpret_cast<const uint32_t*>(bytes.data()), static_cast<int64_t>(blocks),
            keys.data(), sums.data());
  std::array<uint32_t, 2 * kLanes> last{};
  std::memcpy(last.data(), bytes.data() + blocks * kBlock, rest);
  for (uint32_t& key : keys) key += static_cast<uint32_t>(blocks) * kKeyStep;
  add_words(last.data(), 1, keys.data(), sums.data());
  uint64_t whole = bytes.size();
  for (const uint64_t sum : sums) whole = (whole ^ sum ^ sum >> 29) * 0x9e3779b97f4a7c15U;
  return whole;
}

ContentWatch::ContentWatch(std::vector<plan::Slice> slices, int64_t run, int turns,
                           BytesOf bytes_of)
    : run_(run), turns_(turns), bytes_of_(std::move(bytes_of)) {
  int64_t runs = 0;
  for (const plan::Slice& slice : slices) {
    const auto parameter = static_cast<size_t>(slice.parameter);
    if (index_.size() <= parameter) index_.resize(parameter + 1);
    index_[parameter] = slices_.size();
    slices_.push_back({slice, runs, (slice.to - slice.from + run_ - 1) / run_});
    runs += slices_.back().runs;
  }
  sums_.resize(static_cast<size_t>(runs));
}

template <typename Visit>
void ContentWatch::for_runs(Visit visit) const {
  for (const Watched& watched : slices_)
    for (int64_t i = watched.turn % period(watched); i < watched.runs; i += period(watched)) {
      const int64_t from = watched.slice.from + i * run_;
      visit(watched,
            plan::Slice{watched.slice.parameter, from, std::min(from + run_, watched.slice.to)});
    }
}

bool ContentWatch::is_due(const Watched& watched, const plan::Slice& run, int64_t turn) const {
  const int64_t number = (run.from - watched.slice.from) / run_;
  return number % period(watched) == turn % period(watched);
}

void ContentWatch::remember_all() {
  for_runs([this](const Watched& watched, const plan::Slice& run) {
    sums_[place_of(watched, run)] = sum_of(run);
  });
}

bool ContentWatch::is_as_left(const plan::Slice& run) const {
  const Watched& its = watched(run);
  return !is_due(its, run, its.turn) || sums_[place_of(its, run)] == sum_of(run);
}

void ContentWatch::remember(const plan::Slice& run) {
  Watched& its = slices_[index_[static_cast<size_t>(run.parameter)]];
  if (is_due(its, run, its.turn + 1)) sums_[place_of(its, run)] = sum_of(run);
  if (run.to == its.slice.to) ++its.turn;
}

int ContentWatch::look() const {
  int changed = -1;
  for_runs([&](const Watched& watched, const plan::Slice& run) {
    if (changed < 0 && sums_[place_of(watched, run)] != sum_of(run)) changed = run.parameter;
  });
  return changed;
}

int ContentWatch::look_at_next() {
  if (slices_.empty()) return -1;
  const plan::Slice& slice = slices_[next_slice_].slice;
  const int64_t from = slice.from + next_from_;
  const bool changed = !is_as_left({slice.parameter, from, std::min(from + run_, slice.to)});
  next_from_ += run_;
  if (slice.from + next_from_ >= slice.to) {
    next_from_ = 0;
    next_slice_ = (next_slice_ + 1) % slices_.size();
  }
  return changed ? slice.parameter : -1;
}

}  // namespace trireme::shared
