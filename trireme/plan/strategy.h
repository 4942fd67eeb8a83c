// The strategies that come with Trireme, by name, and where each of them runs. The functions are
// pure.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace trireme::plan {

// "one_device", "mirrored" (threads of one process) and "multi_worker" (processes).
std::span<const std::string_view> strategies();

// The strategy that `name` means for these numbers of workers and of replicas in each; `auto` is
// chosen by them. A name of none of strategies() stays as it is. With `replicas` below 1 the
// strategy decides their number. Throws Error(invalid_argument) if the strategy contradicts the
// numbers, and names those that fit.
std::string resolve_strategy(const std::string& name, int workers, int replicas);

}  // namespace trireme::plan
