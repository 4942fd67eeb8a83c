#include <ATen/ops/randint.h>

#include <trireme/base/hash.h>
#include <trireme/parallel/nn/divided_random.h>
#include <limits>

namespace trireme::nn {

DividedRandom::DividedRandom(const Ranks& ranks) {
  if (!ranks) return;
  const auto common = static_cast<uint64_t>(
      at::randint(std::numeric_limits<int64_t>::max(), {1}, at::kLong).item<int64_t>());
  random_.emplace(mix64(common, static_cast<uint64_t>(ranks->rank())));
}

}  // namespace trireme::nn
