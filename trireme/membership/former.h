// An elastic job as its members know it. Another process needs no more to take over as its
// coordinator.
#pragma once
#include <trireme/base/json.h>
#include <trireme/membership/membership.h>
#include <trireme/membership/roles.h>
#include <trireme/membership/roster.h>
#include <trireme/membership/unfinished_steps.h>
#include <trireme/net/message.h>
#include <vector>

namespace trireme::membership {

struct Former {
  struct Place {
    Roster::Process process = 0;
    net::Endpoint standby;  // The address at which this process would be the coordinator.
  };
  net::Endpoint coordinator;  // The coordinator of this generation.
  int generation = -1;
  std::vector<Place> members;    // By worker number.
  RosterOptions roster;          // `target` is the number of workers wanted now.
  MembershipOptions membership;  // Its time-outs and straggler factor.
  Json history = Json::array();  // Generations::history().
  UnfinishedSteps unfinished;
  Roles roles;  // The side tasks.
  // Without etcd only a job on one node can be taken over: only there a process can be known to be
  // gone.
  bool may_be_taken_over() const { return roster.nodes == 1 || roster.by_claim; }

  Json to_json() const;
  static Former from_json(const Json& text);  // Throws nlohmann's errors if `text` is no Former.
};

}  // namespace trireme::membership
