// The shuffled order of a data set that is too large for a table of its samples. Pure.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace trireme::plan {

// A permutation of 0..n-1 whose elements are computed one by one, in constant time and memory: a
// Feistel network of mix64 (base/hash.h) on the smallest power of four that holds n, repeated
// while its result is n or more ("cycle walking"; Black, Rogaway 2002, "Ciphers with arbitrary
// finite domains", section 3). It is the same on every platform.
class KeyedOrder {
 public:
  KeyedOrder(int64_t n, uint64_t seed);
  // The element at `place`, which lies in 0..n-1.
  int64_t at(int64_t place) const;

 private:
  uint64_t once(uint64_t value) const;
  static constexpr size_t kRounds = 6;
  uint64_t n_, mask_;
  std::array<uint64_t, kRounds> keys_;
  int half_bits_;
};

}  // namespace trireme::plan
