// Ranks that are processes, carried by TCP connections of our own: every byte follows a
// CollectivePlan, both ends have proved the job token, and no rank takes another's call for its
// own. For small, elastic and authenticated groups: each pair has two connections. What is sent is
// neither encrypted nor signed: who can rewrite packets between the hosts can change it.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/comm/group.h>
#include <trireme/plan/collective_table.h>
#include <memory>
#include <string>
#include <vector>

namespace trireme::launch {
class Member;
}

namespace trireme::comm {

struct TcpOptions {
  std::string name = "world";   // Of this group: keys in the store are kept apart by it.
  std::string address;          // This side's address to listen on while the ranks meet.
  std::string token;            // The job's.
  plan::CollectiveTable plans;  // Which plan for which size: the same on every rank.
  Milliseconds timeout{60000};
};

// COLLECTIVE over `workers`, which are listed by rank. Synchronous operations run in the thread
// that calls them, others in a thread of the group, in order. send and recv may be called by
// several threads. Tensors of a failed operation hold no particular values.
std::shared_ptr<Group> make_tcp_group(std::shared_ptr<launch::Member> member, int rank,
                                      std::vector<int> workers, const TcpOptions& options);

}  // namespace trireme::comm
