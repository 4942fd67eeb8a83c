// Ranks that are processes, with Gloo (through LibTorch's c10d) as the backend: between hosts and,
// for now, between processes of one host.
//
// The ranks meet through our c10d::Store over the authenticated control connection, and Gloo binds
// to the configured address. Gloo's data ports accept any connection that guesses an address pair
// from that store: they are as open as the network to which they are bound.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/comm/group.h>
#include <functional>
#include <memory>
#include <string>

namespace trireme::membership {
class Member;
}

namespace trireme::comm {

struct GlooOptions {
  // The name of this group; its keys in the store contain it.
  std::string name = "world";
  std::string address;  // The address to bind on this side.
  Milliseconds timeout{60000};
};

// COLLECTIVE over the member's workers. From then on this process ignores SIGPIPE, unless the
// programme handles it. A build without Gloo throws Error(unsupported) saying so.
std::shared_ptr<Group> make_gloo_group(std::shared_ptr<membership::Member> member, int rank,
                                       int size, const GlooOptions& options);
bool gloo_is_compiled_in();

}  // namespace trireme::comm
