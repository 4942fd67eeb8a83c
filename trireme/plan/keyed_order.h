// A shuffled order whose elements are computed one by one, without a table. Pure.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

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
  // The elements at the places from `first` on, as many as `out` has: faster than one by one.
  void fill(int64_t first, std::span<int64_t> out) const;

 private:
  uint64_t once(uint64_t value) const;
  static constexpr size_t kRounds = 6;
  uint64_t n_, mask_;
  std::array<uint64_t, kRounds> keys_;
  int half_bits_;
};

}  // namespace trireme::plan
