// An elastic job as its members know it: enough for another process to take over as its
// coordinator.
#pragma once
#include <trireme/base/json.h>
#include <trireme/launch/membership.h>
#include <trireme/launch/roster.h>
#include <trireme/launch/unfinished_steps.h>
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
  std::vector<Place> members;    // By worker number.
  RosterOptions roster;          // With as many workers wanted as now.
  MembershipOptions membership;  // Its time-outs.
  Json history = Json::array();  // Generations::history().
  UnfinishedSteps unfinished;
  // Without etcd only a job on one node can be taken over: there, a process that is gone is known
  // to be gone.
  bool may_be_taken_over() const { return roster.nodes == 1 || roster.by_claim; }

  Json to_json() const;
  static Former from_json(const Json& text);  // Throws nlohmann's errors for what is none.
};

}  // namespace trireme::launch
