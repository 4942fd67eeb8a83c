// Ranks that are processes, carried by Gloo through LibTorch's c10d. Between hosts, and (for now)
// between processes of one host.
//
// Gloo meets through a c10d::Store of ours over the authenticated control connection, and binds to
// the configured address. Its own data ports accept any connection that guesses an address pair
// handed out there: they are as open as the network they are bound to.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/comm/group.h>
#include <functional>
#include <memory>
#include <string>

namespace trireme::launch {
class Member;
}

namespace trireme::comm {

struct GlooOptions {
  std::string name = "world";  // Of this group: keys in the store are kept apart by it.
  std::string address;         // This side's address to bind.
  Milliseconds timeout{60000};
};

// COLLECTIVE over the member's workers. SIGPIPE is ignored from then on in this process, unless the
// programme handles it itself. The build without Gloo throws Error(unsupported) saying so.
std::shared_ptr<Group> make_gloo_group(std::shared_ptr<launch::Member> member, int rank, int size,
                                       const GlooOptions& options);
bool gloo_is_compiled_in();

}  // namespace trireme::comm
