#include <trireme/watch/phase_marks.h>
#include <trireme/watch/phase_page.h>
#include <string>
#include <utility>

namespace trireme::watch {
namespace {

thread_local std::shared_ptr<PhasePage> marked;
thread_local int depth = 0;  // The number of collective marks inside each other.
thread_local int among_some_ranks = 0;

}  // namespace

void mark_this_thread(std::shared_ptr<PhasePage> page) { marked = std::move(page); }

void mark_phase(Phase phase) {
  if (marked) marked->set(phase);
}

int64_t next_collective() {
  if (!marked || depth > 0) return kUnmarked;
  return among_some_ranks > 0 ? marked->collective() : marked->next_collective();
}

AmongSomeRanks::AmongSomeRanks(bool some) : some_(some) { among_some_ranks += some_ ? 1 : 0; }
AmongSomeRanks::~AmongSomeRanks() { among_some_ranks -= some_ ? 1 : 0; }

CollectiveMark::CollectiveMark(std::string_view operation, int64_t bytes, int64_t number) {
  if (depth++ > 0) {
    if (marked) marked->wait_on();
  } else if (marked) {
    marked->enter(number,
                  among_some_ranks > 0 ? std::string(operation).append(kOfSomeRanks)
                                       : std::string(operation),
                  bytes);
  }
}

CollectiveMark::~CollectiveMark() {
  if (--depth > 0) {
    if (marked) marked->work_on();
  } else if (marked) {
    marked->leave();
  }
}

}  // namespace trireme::watch
