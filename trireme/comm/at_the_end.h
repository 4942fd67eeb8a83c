// Names what differs between the ranks of a loop of one's own when they leave.
#pragma once
#include <trireme/base/error.h>
#include <trireme/membership/member.h>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trireme::comm {

// The parameters of an optimizer when it came to leave(), or to its own end before.
struct ParametersAtTheEnd {
  std::vector<std::pair<std::string, int64_t>> digests;  // By name.
  int64_t steps = 0;
  int64_t alike_in = 0;  // The last step in which the ranks found them alike; 0: none.

  std::string to_text() const;  // For OwnLoop::facts_at_the_end, where each optimizer has one.
  static ParametersAtTheEnd from_text(const std::string& text);
};
using AtTheEnd = std::map<std::string, std::string>;

// A short fact for each optimizer, equal on all ranks whose parameters are.
std::map<std::string, std::string> facts_of(const AtTheEnd& own);

// COLLECTIVE, once the ranks know that these facts are not alike: the error that names ranks,
// parameter and steps. Throws Error(timeout) and Error(peer_lost) if a rank has gone.
Error difference_at_the_end(membership::Member& member, int rank, int ranks, const AtTheEnd& own,
                            Deadline deadline);

}  // namespace trireme::comm
