// How long a CollectivePlan takes, by the alpha-beta model with an overhead a message (as in LogP,
// Culler et al. 1993). Pure.
#pragma once
#include <trireme/plan/collective_plan.h>
#include <span>
#include <string_view>

namespace trireme::plan {

// Between two ranks.
struct LinkCost {
  double round_seconds =
      0;  // What a round costs however little it moves: a barrier, or a message's way.
  double message_seconds = 0;   // What each chunk that a rank receives costs it besides.
  double bytes_per_second = 1;  // That a rank receives; between hosts: that a host receives, and
                                // that it sends, for all its ranks.
  double shared = 1;  // What is left of these where several hosts send to one at once: their bursts
                      // meet before its link.
};
struct PathCost {
  LinkCost inside;                     // Between ranks of one host.
  LinkCost between;                    // Between hosts.
  double memory_bytes_per_second = 1;  // That a rank reads and writes while it adds and copies.
};
std::span<const std::string_view>
paths_with_plans();  // threads, shm, tcp: who carries bytes by plans of ours.
// Of one of these paths. Measured on a small machine, to choose by and not to promise. Throws
// Error(invalid_argument) with the choices for another name.
PathCost cost_of_path(std::string_view path);

// A time that is a straight line over the size of the tensor.
struct CollectiveCost {
  double fixed_seconds = 0, seconds_per_byte = 0;
  double seconds(double tensor_bytes) const {
    return fixed_seconds + seconds_per_byte * tensor_bytes;
  }
};
// Round by round: the rank that waits longest for its messages, and the rank or host that moves the
// most bytes.
CollectiveCost cost(const CollectivePlan& plan, const PathCost& path);

}  // namespace trireme::plan
