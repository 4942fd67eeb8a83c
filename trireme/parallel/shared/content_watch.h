// Notices writes to shared parameters that no version counter shows, such as `p.data().mul_(2)`:
// each rank of the host would apply them to the one copy. Each rank keeps checksums of its part of
// the parameters, run by run.
//
// Each update changes the checksums of a slice. To keep that cheap, long slices are watched in
// turns: an update remembers one run of 8, and the next update compares that run. So a write to
// the whole of a parameter is noticed at once, and a repeated write to any run within 8 updates.
#pragma once
#include <trireme/plan/shard_plan.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace trireme::shared {

// The same number for the same bytes, and almost surely another number for others. The size must
// be a multiple of 4 bytes.
uint64_t checksum(std::span<const std::byte> bytes);

// The watch of one rank; one thread uses it.
class ContentWatch {
 public:
  using BytesOf = std::function<std::span<const std::byte>(const plan::Slice&)>;
  // `slices` has at most one slice of each parameter. A run has `run` elements; the last run of a
  // slice may have fewer. A slice of more than kWholeRuns runs is watched in up to `turns` turns;
  // with 1 all its runs are watched all the time.
  ContentWatch(std::vector<plan::Slice> slices, int64_t run, int turns, BytesOf bytes_of);
  static constexpr int64_t kWholeRuns = 2;

  void remember_all();
  // An update of a slice calls both for each of its runs, in order: the first one before it writes
  // the run, the second one afterwards. A run begins at a multiple of `run` from the beginning of
  // its slice.
  bool is_as_left(const plan::Slice& run) const;
  void remember(const plan::Slice& run);
  // Looks at all runs whose turn it is. Returns the first parameter whose content changed, or -1.
  int look() const;
  // Looks at one run, in turn, and returns its parameter if its content changed, else -1. It needs
  // a watch of 1 turn.
  int look_at_next();

 private:
  // A slice, with the number of its first run among all runs, and its turn.
  struct Watched {
    plan::Slice slice;
    int64_t first_run = 0, runs = 0, turn = 0;
  };
  template <typename Visit>
  void for_runs(Visit visit) const;
  uint64_t sum_of(const plan::Slice& run) const { return checksum(bytes_of_(run)); }
  const Watched& watched(const plan::Slice& run) const {
    return slices_[index_[static_cast<size_t>(run.parameter)]];
  }
  bool is_due(const Watched& watched, const plan::Slice& run, int64_t turn) const;
  size_t place_of(const Watched& watched, const plan::Slice& run) const {
    return static_cast<size_t>(watched.first_run + (run.from - watched.slice.from) / run_);
  }
  int64_t period(const Watched& watched) const {
    return watched.runs <= kWholeRuns ? 1 : std::min<int64_t>(watched.runs, turns_);
  }

  int64_t run_;
  int turns_;
  BytesOf bytes_of_;
  std::vector<Watched> slices_;
  std::vector<size_t> index_;  // By parameter: its slice.
  // By run. Only the checksums of the runs whose turn it is are those of the content.
  std::vector<uint64_t> sums_;
  size_t next_slice_ = 0;  // The slice and place of the next look_at_next().
  int64_t next_from_ = 0;  // The place counts from the beginning of the slice.
};

}  // namespace trireme::shared
