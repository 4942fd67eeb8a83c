#include <trireme/parallel/clones.h>
#include <trireme/parallel/shared/content_watch.h>
#include <algorithm>
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

ContentWatch::ContentWatch(std::vector<Piece> pieces, int64_t run, BytesOf bytes_of)
    : pieces_(std::move(pieces)), run_(run), bytes_of_(std::move(bytes_of)) {
  int64_t runs = 0;
  for (const Piece& piece : pieces_) {
    const auto parameter = static_cast<size_t>(piece.parameter);
    if (places_.size() <= parameter) places_.resize(parameter + 1);
    places_[parameter] = {piece.from, runs};
    runs += (piece.to - piece.from + run_ - 1) / run_;
  }
  sums_.resize(static_cast<size_t>(runs));
}

template <typename Visit>
void ContentWatch::for_runs(Visit visit) const {
  for (const Piece& piece : pieces_)
    for (int64_t from = piece.from; from < piece.to; from += run_)
      visit(Piece{piece.parameter, from, std::min(from + run_, piece.to)});
}

void ContentWatch::remember_all() {
  for_runs([this](const Piece& run) { remember(run); });
}

int ContentWatch::look_at_all() const {
  int changed = -1;
  for_runs([&](const Piece& run) {
    if (changed < 0 && !is_as_left(run)) changed = run.parameter;
  });
  return changed;
}

int ContentWatch::look_at_next() {
  if (pieces_.empty()) return -1;
  const Piece& piece = pieces_[next_piece_];
  const int64_t from = piece.from + next_from_;
  const bool changed = !is_as_left({piece.parameter, from, std::min(from + run_, piece.to)});
  next_from_ += run_;
  if (piece.from + next_from_ >= piece.to) {
    next_from_ = 0;
    next_piece_ = (next_piece_ + 1) % pieces_.size();
  }
  return changed ? piece.parameter : -1;
}

}  // namespace trireme::shared
