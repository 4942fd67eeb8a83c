#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/faults/faults.h>
#include <algorithm>

namespace trireme {
namespace {

// A sequence of numbers from one seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(
        (static_cast<unsigned __int128>(mix64(seed_, next_++)) * static_cast<uint64_t>(bound)) >>
        64);
  }

 private:
  uint64_t seed_, next_ = 0;
};

constexpr Phase kPhases[] = {Phase::data, Phase::forward, Phase::backward, Phase::exchange,
                             Phase::optimizer};

Fault draw_fault(Draw& draw, const Fault& random, int world_size) {
  Fault fault;
  fault.kind =
      random.kinds[static_cast<size_t>(draw.below(static_cast<int64_t>(random.kinds.size())))];
  // Step 1 must be complete before anything can be recovered.
  fault.step = 2 + draw.below(random.steps - 1);
  fault.rank = static_cast<int>(draw.below(world_size));
  fault.phase = kPhases[draw.below(std::size(kPhases))];
  switch (fault.kind) {
    case FaultKind::stop: fault.duration = Milliseconds(100 + draw.below(2900)); break;
    case FaultKind::slow:
      fault.phase = Phase::forward;
      fault.duration = Milliseconds(1 + draw.below(20));
      break;
    case FaultKind::corrupt: fault.phase = Phase::optimizer; break;
    case FaultKind::drop:
      fault.phase = Phase::exchange;
      fault.peer = static_cast<int>((fault.rank + 1 + draw.below(world_size - 1)) % world_size);
      break;
    case FaultKind::disk_full:
      fault.rank = 0;
      fault.phase = Phase::checkpoint;
      break;
    case FaultKind::kill:
    case FaultKind::random: break;
  }
  return fault;
}

[[noreturn]] void refuse(const Fault& fault, const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "inject", fmt::format("'{}': {}", fault.text(), what),
              remedy);
}

void check(const Fault& fault, int world_size, int64_t steps) {
  if (const int highest = std::max(fault.rank, fault.peer); highest >= world_size)
    refuse(fault, fmt::format("there is no rank {} among {} replicas", highest, world_size),
           world_size == 1 ? "rank 0, or more --workers"
                           : fmt::format("a rank from 0 to {}", world_size - 1));
  if (steps > 0 && fault.step > steps)
    refuse(fault, fmt::format("step {} is beyond the {} steps of the run", fault.step, steps),
           fmt::format("a step from 1 to {}", steps));
}

}  // namespace

std::vector<Fault> schedule_faults(const std::vector<Fault>& faults, int world_size,
                                   int64_t steps) {
  std::vector<Fault> schedule;
  for (const Fault& fault : faults) {
    if (fault.kind != FaultKind::random) {
      check(fault, world_size, steps);
      schedule.push_back(fault);
      continue;
    }
    const bool drops =
        std::find(fault.kinds.begin(), fault.kinds.end(), FaultKind::drop) != fault.kinds.end();
    if (drops && world_size < 2)
      refuse(fault, "one replica has no link that could be dropped", "kinds=kill+stop");
    if (steps > 0 && fault.steps > steps)
      refuse(fault,
             fmt::format("its faults strike up to step {}, and the run has {} steps", fault.steps,
                         steps),
             fmt::format("steps={}", steps));
    Draw draw(fault.seed);
    for (int i = 0; i < fault.count; ++i) schedule.push_back(draw_fault(draw, fault, world_size));
  }
  std::stable_sort(schedule.begin(), schedule.end(),
                   [](const Fault& a, const Fault& b) { return a.step < b.step; });
  return schedule;
}

}  // namespace trireme
