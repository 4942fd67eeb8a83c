#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/launch/phase.h>
#include <array>

namespace trireme {
namespace {

constexpr std::array<std::string_view, 11> kNames{"starting", "connecting", "data",       "forward", "backward", "exchange",
                                                  "update",   "evaluate",   "checkpoint", "idle",    "leaving"};
static_assert(kNames.size() == static_cast<size_t>(Phase::leaving) + 1);

}  // namespace

std::string_view to_string(Phase phase) { return kNames.at(static_cast<size_t>(phase)); }

Phase phase_from_string(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Phase>(i);
  }
  throw Error(ErrorCode::invalid_argument, "launch", fmt::format("'{}' is no phase of a training run", name),
              "the same version of Trireme for all workers");
}

std::string PhaseAt::describe() const {
  if (step < 0) return std::string(to_string(phase));
  return fmt::format("{} of step {}", to_string(phase), step);
}

}  // namespace trireme
