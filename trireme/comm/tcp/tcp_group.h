// Ranks that are processes, connected by our own TCP backend: every byte follows a CollectivePlan,
// both ends have proved the job token, and no rank mistakes another's call for its own. It is for
// small, elastic and authenticated groups, since each pair has two connections. The traffic is
// neither encrypted nor signed: an attacker that can rewrite packets between the hosts
// can change it.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/comm/group.h>
#include <trireme/plan/collective_table.h>
#include <memory>
#include <string>
#include <vector>

namespace trireme::membership {
class Member;
}

namespace trireme::comm {

struct TcpOptions {
  // The name of this group; its keys in the store contain it.
  std::string name = "world";
  std::string address;          // The address on which this side listens while the ranks meet.
  std::string token;            // The token of the job.
  plan::CollectiveTable plans;  // Chooses the plan for each size; the same on every rank.
  Milliseconds timeout{60000};
};

// COLLECTIVE over `workers`, which are listed by rank. Synchronous operations run in the calling
// thread, others in a thread of the group, in order. Several threads may call send and recv. The
// tensors of a failed operation have no particular values.
std::shared_ptr<Group> make_tcp_group(std::shared_ptr<membership::Member> member, int rank,
                                      std::vector<int> workers, const TcpOptions& options);

}  // namespace trireme::comm
