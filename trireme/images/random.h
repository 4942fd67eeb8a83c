// The random numbers of augmentation.
#pragma once
#include <cstdint>

namespace trireme::images {

// The n-th number depends on the 64 bits and n alone, so a sample is augmented alike in every
// process and on every host. uniform() and below() have the same bits everywhere. normal(),
// gamma() and beta() call the logarithm of the C library, whose last bit may differ between
// libraries. One thread at a time uses an object.
class Random {
 public:
  explicit Random(uint64_t bits) : key_(bits) {}
  uint64_t bits();
  double uniform();  // In [0, 1), a multiple of 2^-53.
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  int64_t below(int64_t n);             // 0..n-1, for n > 0.
  double normal();                      // Mean 0, variance 1 (Box and Muller 1958).
  double gamma(double shape);           // Scale 1, for shape > 0 (Marsaglia and Tsang 2000).
  double beta(double alpha, double b);  // In [0, 1].

 private:
  uint64_t key_, count_ = 0;
};

}  // namespace trireme::images
