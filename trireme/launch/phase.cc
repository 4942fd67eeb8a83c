#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/launch/phase.h>
#include <array>

namespace trireme {
namespace {

constexpr std::array<std::string_view, kPhases> kNames{"starting",  "connecting", "data",     "forward",    "backward", "exchange",
                                                       "optimizer", "callbacks",  "evaluate", "checkpoint", "idle",     "leaving"};

std::string describe(const CollectiveAt& collective) {
  const std::string size = collective.bytes > 0 ? " of " + format_bytes(collective.bytes) : "";
  return collective.operation.empty() ? fmt::format("collective {}", collective.number)
                                      : fmt::format("collective {}: {}{}", collective.number, collective.operation, size);
}

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
  // A programme's own loop names no phases, but its collectives are known.
  if (step < 0 && phase == Phase::starting && collective.number > 0)
    return collective.inside ? trireme::describe(collective) : fmt::format("its own code behind collective {}", collective.number);
  const std::string place = step < 0 ? std::string(to_string(phase)) : fmt::format("{} of step {}", to_string(phase), step);
  return collective.inside ? fmt::format("{} ({})", place, trireme::describe(collective)) : place;
}

}  // namespace trireme
