#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <trireme/base/hash.h>
#include <trireme/comm/first_numbers.h>
#include <cstdint>
#include <mutex>
#include <string>

namespace trireme::comm {
namespace {

uint64_t seed_now() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.current_seed();
}

// LibTorch begins with a random number of 53 bits. One that is small was set before this library
// was loaded.
const uint64_t seed_at_start = seed_now();
constexpr uint64_t kLargestOfPeople = 0xffffffff;

bool has_seed_of_programme() {
  return seed_now() != seed_at_start || seed_at_start <= kLargestOfPeople;
}

}  // namespace

void seed_by_job(const membership::Identity& identity) {
  const bool is_alone = identity.workers == 1 && !identity.elastic;
  if (is_alone || has_seed_of_programme()) return;
  const std::string job = sha256_hex(identity.job_id + "\n" + identity.token.value_or(""));
  at::manual_seed(std::stoull(job.substr(0, 13), nullptr, 16) | 1);
}

}  // namespace trireme::comm
