#include <trireme/launch/phase_marks.h>
#include <trireme/launch/phase_page.h>
#include <utility>

namespace trireme::launch {
namespace {

thread_local std::shared_ptr<PhasePage> marked;
thread_local int depth = 0;  // The number of collective marks inside each other.

}  // namespace

void mark_this_thread(std::shared_ptr<PhasePage> page) { marked = std::move(page); }

void mark_phase(Phase phase) {
  if (marked) marked->set(phase);
}

int64_t next_collective() { return marked && depth == 0 ? marked->next_collective() : 0; }

CollectiveMark::CollectiveMark(std::string_view operation, int64_t bytes, int64_t number) {
  if (depth++ > 0) {
    if (marked) marked->wait_on();
  } else if (marked) {
    marked->enter(number, operation, bytes);
  }
}

CollectiveMark::~CollectiveMark() {
  if (--depth > 0) {
    if (marked) marked->work_on();
  } else if (marked) {
    marked->leave();
  }
}

}  // namespace trireme::launch
