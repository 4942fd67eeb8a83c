#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/plan/keyed_order.h>
#include <algorithm>
#include <bit>
#include <utility>

namespace trireme::plan {
KeyedOrder::KeyedOrder(int64_t n, uint64_t seed)
    : n_(static_cast<uint64_t>(n)),
      half_bits_((static_cast<int>(std::bit_width(n_ > 1 ? n_ - 1 : 1)) + 1) / 2) {
  if (n < 1)
    throw Error(ErrorCode::invalid_argument, "plan", fmt::format("cannot order {} samples", n));
  mask_ = (uint64_t{1} << half_bits_) - 1;
  for (size_t round = 0; round < kRounds; ++round) keys_[round] = mix64(seed, round);
}

uint64_t KeyedOrder::once(uint64_t value) const {
  uint64_t left = value >> half_bits_, right = value & mask_;
  for (const uint64_t key : keys_) {
    const uint64_t mixed = left ^ (mix64(key ^ right) & mask_);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

int64_t KeyedOrder::at(int64_t place) const {
  if (place < 0 || static_cast<uint64_t>(place) >= n_)
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("place {} is outside an order of {} samples", place, n_));
  uint64_t value = once(static_cast<uint64_t>(place));
  while (value >= n_) value = once(value);
  return static_cast<int64_t>(value);
}

// The walks of several values do not wait for each other: those that are still outside take their
// next step together.
void KeyedOrder::fill(int64_t first, std::span<int64_t> out) const {
  const auto count = static_cast<uint64_t>(out.size());
  if (first < 0 || static_cast<uint64_t>(first) > n_ || count > n_ - static_cast<uint64_t>(first))
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("places {} to {} are outside an order of {} samples", first,
                            static_cast<uint64_t>(first) + count, n_));
  constexpr size_t kTogether = 256;
  std::array<uint32_t, kTogether> outside;
  for (size_t begin = 0; begin < out.size(); begin += kTogether) {
    const std::span<int64_t> part = out.subspan(begin, std::min(kTogether, out.size() - begin));
    size_t walking = 0;
    const auto put = [&](size_t i, uint64_t value) {
      part[i] = static_cast<int64_t>(value);
      outside[walking] = static_cast<uint32_t>(i);
      walking += value >= n_;
    };
    for (size_t i = 0; i < part.size(); ++i)
      put(i, once(static_cast<uint64_t>(first) + begin + i));
    while (walking > 0) {
      const size_t before = std::exchange(walking, 0);
      for (size_t i = 0; i < before; ++i) {
        const size_t place = outside[i];
        put(place, once(static_cast<uint64_t>(part[place])));
      }
    }
  }
}

}  // namespace trireme::plan
