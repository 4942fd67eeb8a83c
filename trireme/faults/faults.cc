#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/hash.h>
#include <trireme/faults/faults.h>
#include <trireme/faults/words.h>
#include <algorithm>

namespace trireme {
namespace {

using faults::kPlaces;

size_t order_of(Phase phase) {
  return static_cast<size_t>(std::find(kPlaces.begin(), kPlaces.end(), phase) - kPlaces.begin());
}

std::string duration_text(Milliseconds duration) { return fmt::format("{}ms", duration.count()); }

std::string random_text(const Fault& fault) {
  std::vector<std::string_view> kinds;
  for (const FaultKind kind : fault.kinds) kinds.push_back(to_string(kind));
  return fmt::format("random:seed={},faults={},steps={},kinds={}", fault.seed, fault.count,
                     fault.steps, fmt::join(kinds, "+"));
}

// The same steps in each run, without a pattern.
bool is_in_share(const Fault& fault, int64_t step) {
  const uint64_t drawn =
      mix64(fault.seed, static_cast<uint64_t>(fault.rank), static_cast<uint64_t>(step));
  return drawn % 100 < static_cast<uint64_t>(fault.percent);
}

}  // namespace

std::string_view to_string(FaultKind kind) { return faults::kKinds.at(static_cast<size_t>(kind)); }

std::string Fault::text() const {
  const std::string when =
      fmt::format("@step={},phase={}", step,
                  to_string(order_of(phase) < kPlaces.size() ? phase : Phase::backward));
  switch (kind) {
    case FaultKind::random: return random_text(*this);
    case FaultKind::drop: return fmt::format("drop:link={}-{}@step={}", rank, peer, step);
    case FaultKind::disk_full: return fmt::format("disk-full:rank={}@step={}", rank, step);
    case FaultKind::corrupt: return fmt::format("corrupt:rank={},exchange@step={}", rank, step);
    case FaultKind::slow:
      return fmt::format("slow:rank={},{}={}@step={}{}", rank, to_string(phase),
                         duration_text(duration), step,
                         percent < 100 ? fmt::format(",percent={}", percent) : "");
    case FaultKind::stop:
      return fmt::format("stop:rank={}{}{}", rank, when,
                         duration.count() > 0 ? ",for=" + duration_text(duration) : "");
    case FaultKind::kill: break;
  }
  return fmt::format("kill:rank={}{}", rank, when);
}

std::string to_text(const std::vector<Fault>& faults) {
  std::vector<std::string> texts;
  for (const Fault& fault : faults) texts.push_back(fault.text());
  return fmt::format("{}", fmt::join(texts, "; "));
}

bool is_due(const Fault& fault, int rank, Phase phase, int64_t step) {
  const bool concerns =
      rank == fault.rank || (fault.kind == FaultKind::drop && rank == fault.peer);
  if (!concerns || order_of(phase) == kPlaces.size()) return false;
  if (fault.kind == FaultKind::slow)
    return step >= fault.step && phase == fault.phase && is_in_share(fault, step);
  const auto is_beside_steps = [](Phase where) {
    return where == Phase::checkpoint || where == Phase::idle;
  };
  if (is_beside_steps(fault.phase)) return step >= fault.step && phase == fault.phase;
  return step == fault.step && !is_beside_steps(phase) && order_of(phase) >= order_of(fault.phase);
}

}  // namespace trireme
