// Predicts how long a CollectivePlan takes, by the alpha-beta model with an overhead per message
// (as in LogP, Culler et al. 1993). The functions are pure.
#pragma once
#include <trireme/plan/collective_plan.h>
#include <span>
#include <string_view>

namespace trireme::plan {

// The price of communication between two ranks.
struct LinkCost {
  // The cost of a round, however little it moves: a barrier, or the way of a message.
  double round_seconds = 0;
  // The additional cost of each chunk that a rank receives.
  double message_seconds = 0;
  // The rate at which a rank receives. Between hosts it is the rate at which a host receives for
  // all its ranks, and the rate at which it sends.
  double bytes_per_second = 1;
  // The fraction of bytes_per_second that is left when several hosts send to one host at once:
  // their bursts meet before its link.
  double contended_fraction = 1;
};
struct PathCost {
  LinkCost inside;   // Between ranks of one host.
  LinkCost between;  // Between ranks of different hosts.
  // The rate at which a rank reads and writes while it adds and copies.
  double memory_bytes_per_second = 1;
};
// The paths that carry bytes by our plans: threads, shm, tcp.
std::span<const std::string_view> paths_with_plans();
// The cost of one of these paths. The figures were measured on a small machine; they are good for
// choosing an algorithm, not for predicting a time. Throws Error(invalid_argument) with the
// choices for another name.
PathCost cost_of_path(std::string_view path);

// A time that grows linearly with the size of the tensor.
struct CollectiveCost {
  double fixed_seconds = 0, seconds_per_byte = 0;
  double seconds(double tensor_bytes) const {
    return fixed_seconds + seconds_per_byte * tensor_bytes;
  }
};
// The predicted time of a plan, round by round. In each round it counts the rank that waits
// longest for its messages, and the rank or host that moves the most bytes.
CollectiveCost cost(const CollectivePlan& plan, const PathCost& path);

}  // namespace trireme::plan
