// Notices writes to shared parameters that no version counter shows, such as `p.data().mul_(2)`:
// each rank of the host would apply them to the one copy. Each rank keeps checksums of its part of
// the parameters, run by run. It compares a run just before it updates it, when the run must be
// loaded into the cache anyway.
#pragma once
#include <trireme/parallel/shared/layout.h>
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
  using BytesOf = std::function<std::span<const std::byte>(const Piece&)>;
  // `pieces` has at most one piece of each parameter. A run has `run` elements; the last run of a
  // piece may have fewer.
  ContentWatch(std::vector<Piece> pieces, int64_t run, BytesOf bytes_of);

  void remember_all();
  // Remembers a run: a part of a piece that begins at a multiple of `run` from the
  // piece's beginning.
  void remember(const Piece& run) { sum_of(run) = checksum(bytes_of_(run)); }
  bool is_as_left(const Piece& run) const { return sum_of(run) == checksum(bytes_of_(run)); }
  // Looks at one run, in turn, and returns its parameter if its content changed, else -1.
  int look_at_next();
  // Looks at all runs and returns the first parameter whose content changed, or -1.
  int look_at_all() const;

 private:
  template <typename Visit>
  void for_runs(Visit visit) const;
  uint64_t& sum_of(const Piece& run) { return sums_[static_cast<size_t>(index_of(run))]; }
  uint64_t sum_of(const Piece& run) const { return sums_[static_cast<size_t>(index_of(run))]; }
  int64_t index_of(const Piece& run) const {
    const Place& place = places_[static_cast<size_t>(run.parameter)];
    return place.first_run + (run.from - place.from) / run_;
  }

  struct Place {
    int64_t from = 0, first_run = 0;
  };
  std::vector<Piece> pieces_;
  int64_t run_;
  BytesOf bytes_of_;
  std::vector<Place> places_;  // The places by parameter.
  std::vector<uint64_t> sums_;
  size_t next_piece_ = 0;  // The piece and place of the next look_at_next().
  int64_t next_from_ = 0;  // The place counts from the beginning of the piece.
};

}  // namespace trireme::shared
