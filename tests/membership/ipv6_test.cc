// A job whose coordinator listens on the IPv6 loopback address.
#include <gmock/gmock.h>
#include <trireme/membership/identity.h>
#include "../net/free_port.h"
#include "../net/ipv6_loopback.h"
#include "job.h"

namespace trireme::membership::ipv6_test {
namespace {

using testing::StartsWith;

class Ipv6Job : public testing::Test {
 protected:
  void SetUp() override { TRIREME_SKIP_WITHOUT_IPV6(); }
};

std::unique_ptr<Member> join(const net::Endpoint& coordinator, int worker, int workers) {
  return std::make_unique<Member>(
      coordinator, kToken, worker, workers, 5, std::map<std::string, std::string>{},
      MemberOptions{.timeout = Milliseconds(10000), .heartbeat_interval = Milliseconds(20)});
}

TEST_F(Ipv6Job, ItsMembersSeeEachOthersAddressesAndShareTheStore) {
  const Coordinator coordinator({"::1", 0}, kToken, options_for(3));
  // The address travels as text, through the store of torchrun or a file.
  const std::string text = coordinator.endpoint().describe();
  EXPECT_THAT(text, StartsWith("[::1]:"));
  std::vector<std::unique_ptr<Member>> members(3);
  on_each(3, [&](int worker) {
    members[static_cast<size_t>(worker)] = join(net::parse_endpoint(text), worker, 3);
  });
  for (const auto& member : members)
    for (const auto& peer : member->peers()) EXPECT_EQ(peer.address, "::1");
  members[0]->set("address of rank 0", net::Endpoint{"::1", 4000}.describe());
  EXPECT_EQ(net::parse_endpoint(members[2]->get("address of rank 0", soon())).host, "::1");
}

TEST_F(Ipv6Job, WorkersThatATorchrunStartedMeetAtAnIpv6Master) {
  const std::string port = std::to_string(net::free_port());
  const auto identity_of = [&](int rank) {
    return resolve_identity(Environment({{"RANK", std::to_string(rank)},
                                         {"WORLD_SIZE", "2"},
                                         {"LOCAL_RANK", std::to_string(rank)},
                                         {"LOCAL_WORLD_SIZE", "2"},
                                         {"MASTER_ADDR", "::1"},
                                         {"MASTER_PORT", port}}));
  };
  const Coordinator coordinator(*identity_of(0).rendezvous, kToken, options_for(2));
  on_each(2, [&](int worker) {
    const auto member = join(*identity_of(worker).rendezvous, worker, 2);
    EXPECT_EQ(member->peers().size(), 2u);
  });
}

}  // namespace
}  // namespace trireme::membership::ipv6_test
