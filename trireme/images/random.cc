#include <trireme/images/random.h>

#include <trireme/base/hash.h>
#include <cmath>
#include <numbers>

namespace trireme::images {

uint64_t Random::bits() { return mix64(key_, count_++); }

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

int64_t Random::below(int64_t n) {
  // The upper half of a product of 64 bits by 64 bits. Its bias is below n / 2^64.
  const auto product = static_cast<unsigned __int128>(bits()) * static_cast<uint64_t>(n);
  return static_cast<int64_t>(product >> 64);
}

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

double Random::gamma(double shape) {
  if (shape < 1) {
    // A larger shape, scaled down by a power of a uniform number.
    const double larger = gamma(shape + 1);
    return larger * std::pow(1 - uniform(), 1 / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal(), root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

double Random::beta(double alpha, double b) {
  const double first = gamma(alpha), second = gamma(b);
  // Both may underflow for tiny shapes. Then one of the ends is nearly certain.
  if (!(first + second > 0)) return uniform() * (alpha + b) < alpha ? 1 : 0;
  return first / (first + second);
}

}  // namespace trireme::images
