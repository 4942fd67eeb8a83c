// What the thread that speaks for its process marks on its way: its phases, and the operations that
// all ranks take part in. Threads that nobody asked mark nothing, and pay for a look at a variable
// of their own.
#pragma once
#include <trireme/launch/phase.h>
#include <cstdint>
#include <memory>
#include <string_view>

namespace trireme::launch {

class PhasePage;

void mark_this_thread(std::shared_ptr<PhasePage> page);  // From now on; null: no more.
void mark_phase(Phase phase);                            // Of the step under way.
// The number of the collective that this thread begins now and waits for later; 0 inside another
// one, or where nothing is marked.
int64_t next_collective();

// While it lives, the thread is in a collective and waits for the others. Inside another one: waits
// again, and works once it is gone.
class CollectiveMark {
 public:
  explicit CollectiveMark(std::string_view operation, int64_t bytes = 0)
      : CollectiveMark(operation, bytes, next_collective()) {}
  CollectiveMark(std::string_view operation, int64_t bytes, int64_t number);
  ~CollectiveMark();
  CollectiveMark(const CollectiveMark&) = delete;
};

}  // namespace trireme::launch
