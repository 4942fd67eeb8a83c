#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/comm/odd_ranks.h>
#include <trireme/parallel/equal_draws.h>
#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

namespace trireme {
namespace {

uint64_t hash_of_bytes(const at::Tensor& bytes) {
  const auto* const begin = bytes.const_data_ptr<uint8_t>();
  uint64_t hash = 1;
  for (int64_t i = 0; i < bytes.numel(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, begin + i, static_cast<size_t>(std::min<int64_t>(8, bytes.numel() - i)));
    hash = mix64(hash, word);
  }
  return hash;
}

// The first ranks that have told the same value. 0 is no value.
std::vector<int> first_equal_ranks(const std::vector<int64_t>& values) {
  for (const int64_t value : values) {
    if (value == 0 || std::ranges::count(values, value) == 1) continue;
    std::vector<int> ranks;
    for (size_t rank = 0; rank < values.size(); ++rank)
      if (values[rank] == value) ranks.push_back(static_cast<int>(rank));
    return ranks;
  }
  return {};
}

}  // namespace

EqualDraws::EqualDraws(at::Device device) : generators_{at::detail::getDefaultCPUGenerator()} {
  if (!device.is_cpu()) generators_.push_back(at::globalContext().defaultGenerator(device));
}

std::vector<EqualDraws::Look> EqualDraws::looks() const {
  std::vector<Look> now;
  for (at::Generator generator : generators_) {
    const std::lock_guard lock(generator.mutex());
    now.push_back({generator.current_seed(), hash_of_bytes(generator.get_state())});
  }
  return now;
}

void EqualDraws::look(Group& group, int64_t step) {
  const int64_t call = calls_++ % kCallsBetweenLooks;
  if (call > 1 || has_told_) return;
  const std::vector<Look> now = looks(), before = std::exchange(before_, now);
  if (call == 0) return;
  for (size_t g = 0; g < generators_.size(); ++g) {
    const bool has_drawn = now[g].seed == before[g].seed && now[g].state != before[g].state;
    const auto own = has_drawn ? static_cast<int64_t>(mix64(before[g].state, now[g].state)) : 0;
    const at::Tensor all = at::zeros({group.size()}, at::kLong);
    group.all_gather(at::tensor({own}, at::kLong), all);
    const auto* const values = all.const_data_ptr<int64_t>();
    const std::vector<int> ranks = first_equal_ranks({values, values + group.size()});
    if (ranks.empty() || std::exchange(has_told_, true) || group.rank() != 0) continue;
    log_warning(
        "step {}: {} draw the same random numbers from the default generator, so their dropout "
        "and noise, if any, are the same; try: torch::manual_seed(seed + world.rank()), or "
        "torch::manual_seed(seed) before Distributed or DataParallel is made. An order of samples "
        "that all ranks share comes from a generator of its own",
        step, names_of_ranks(ranks));
  }
}

}  // namespace trireme
