#include <trireme/base/unix_time.h>
#include <trireme/faults/injector.h>
#include <trireme/parallel/own_faults.h>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

namespace trireme {

void listen_for_faults(World& world) {
  const char* const text = std::getenv(kInjectVariable);
  const std::shared_ptr<OwnLoop>& loop = world.own_loop();
  if (text == nullptr || loop->strike) return;
  const char* const marks = std::getenv(kInjectMarksVariable);
  FaultActions actions = process_actions();
  actions.tell = [weak = std::weak_ptr(loop)](const Fault& fault, int64_t step) {
    World& now = *weak.lock()->world;
    now.tell_event({.rank = now.rank(),
                    .time = unix_seconds(),
                    .event = monitor::FaultRecord{step, fault.text()}});
  };
  // The launcher has drawn the random ones. It has compared the others with the ranks of the
  // beginning, of which some may be lost by now.
  const std::vector<Fault> faults = parse_faults(text);
  int ranks = world.size();
  for (const Fault& fault : faults) ranks = std::max({ranks, fault.rank + 1, fault.peer + 1});
  const auto injector = std::make_shared<Injector>(schedule_faults(faults, ranks),
                                                   marks ? marks : "", std::move(actions));
  loop->strike = [injector, weak = std::weak_ptr(loop)](Phase phase, int64_t step) {
    injector->at(weak.lock()->world->rank(), phase, step);
  };
}

}  // namespace trireme
