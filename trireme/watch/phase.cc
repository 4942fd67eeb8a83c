#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/watch/phase.h>
#include <array>

namespace trireme {
namespace {

constexpr std::array<std::string_view, kPhases> kNames{
    "starting",  "connecting", "data",     "forward",    "backward", "exchange",
    "optimizer", "callbacks",  "evaluate", "checkpoint", "idle",     "leaving"};

}  // namespace

std::string_view to_string(Phase phase) { return kNames.at(static_cast<size_t>(phase)); }

Phase phase_from_string(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Phase>(i);
  }
  throw Error(ErrorCode::invalid_argument, "watch",
              fmt::format("'{}' is not a phase of a training run", name),
              "the same version of Trireme for all workers");
}

std::string CollectiveAt::describe() const {
  const std::string size = bytes > 0 ? " of " + format_bytes(bytes) : "";
  return operation.empty() ? fmt::format("collective {}", number)
                           : fmt::format("collective {}: {}{}", number, operation, size);
}

std::string PhaseAt::brief() const {
  // A programme with its own loop names no phases, but its collectives are known.
  if (step < 0 && phase == Phase::starting && collective.number > 0)
    return fmt::format("its own code {} collective {}", collective.inside ? "in" : "after",
                       collective.number);
  return step < 0 ? std::string(to_string(phase))
                  : fmt::format("{} of step {}", to_string(phase), step);
}

std::string PhaseAt::describe() const {
  return collective.inside ? fmt::format("{} ({})", brief(), collective.describe()) : brief();
}

}  // namespace trireme
