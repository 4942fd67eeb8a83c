// Marks the phases and the collectives of one thread, which speaks for its process. Other threads
// mark nothing; each call costs them one read of a thread-local variable.
#pragma once
#include <trireme/watch/phase.h>
#include <cstdint>
#include <memory>
#include <string_view>

namespace trireme::watch {

class PhasePage;

// From now on this thread writes its marks to `page`. Null: it marks no more.
void mark_this_thread(std::shared_ptr<PhasePage> page);
void mark_phase(Phase phase);  // Marks a phase of the current step.
// Returns the number of the collective that this thread begins now and waits for later. Returns
// kUnmarked inside another collective, or on a thread that marks nothing.
inline constexpr int64_t kUnmarked = -1;
int64_t next_collective();

// While this object lives, the thread is in a collective and waits for the others. Inside another
// mark, the thread waits while this object lives and works after it.
class CollectiveMark {
 public:
  explicit CollectiveMark(std::string_view operation, int64_t bytes = 0)
      : CollectiveMark(operation, bytes, next_collective()) {}
  CollectiveMark(std::string_view operation, int64_t bytes, int64_t number);
  ~CollectiveMark();
  CollectiveMark(const CollectiveMark&) = delete;
};

// While this object lives, the collectives of this thread are those of some of the ranks. They
// have the number of the collective before (0 at the start of a step), since other ranks do not
// count them, and their names say so.
class AmongSomeRanks {
 public:
  explicit AmongSomeRanks(bool some);
  ~AmongSomeRanks();
  AmongSomeRanks(const AmongSomeRanks&) = delete;

 private:
  const bool some_;
};
inline constexpr std::string_view kOfSomeRanks = " of some ranks";

// The name of waiting for all workers at the coordinator, such as to compare options.
inline constexpr std::string_view kAgreement = "agreement";

}  // namespace trireme::watch
