// An elastic job as its members know it: enough for another process to take over as its
// coordinator.
#pragma once
#include <trireme/base/json.h>
#include <trireme/launch/membership.h>
#include <trireme/launch/roster.h>
#include <trireme/net/message.h>
#include <vector>

namespace trireme::launch {

struct Former {
  struct Place {
    Roster::Process process = 0;
    net::Endpoint standby;  // Where this process would be the coordinator.
  };
  net::Endpoint coordinator;  // The one of this generation.
  int generation = -1;
  std::vector<Place> members;    // By worker number: also the order in which they take over.
  RosterOptions roster;          // With as many workers wanted as now.
  MembershipOptions membership;  // Its time-outs.
  Json history = Json::array();  // Generations::history().

  Json to_json() const;
  static Former from_json(const Json& text);  // Throws nlohmann's errors for what is none.
};

}  // namespace trireme::launch
