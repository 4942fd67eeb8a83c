// Control connections and requests over the IPv6 loopback address.
#include "ipv6_loopback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/net/requests/request_client.h>
#include <trireme/net/requests/request_server.h>
#include <trireme/net/sockets.h>
#include <asio/io_context.hpp>
#include "events.h"

namespace trireme::net::ipv6_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const Endpoint kAnyIpv6Port{"::1", 0};

class Ipv6 : public testing::Test {
 protected:
  void SetUp() override { TRIREME_SKIP_WITHOUT_IPV6(); }
};

TEST_F(Ipv6, ControlMessagesGoBothWays) {
  Recorder at_server, at_client;
  ControlServer server(kAnyIpv6Port, "secret", at_server.server_events(), {});
  const Endpoint endpoint = parse_endpoint(server.endpoint().describe());
  EXPECT_THAT(server.endpoint().describe(), StartsWith("[::1]:"));
  ControlClient client(endpoint, "secret", at_client.client_events(), soon());
  EXPECT_EQ(client.local_address(), "::1");
  ASSERT_TRUE(at_server.wait([&] { return !at_server.opened.empty(); }));
  const auto [id, peer] = at_server.look([&] { return *at_server.opened.begin(); });
  EXPECT_THAT(peer, StartsWith("[::1]:"));
  client.send({{"number", 1}});
  server.send(id, {{"number", 2}});
  EXPECT_TRUE(at_server.wait([&] { return at_server.received.size() == 1; }));
  EXPECT_TRUE(at_client.wait([&] { return at_client.received.size() == 1; }));
}

TEST_F(Ipv6, ACoordinatorIsFoundAndAnotherJobsIsTold) {
  Recorder at_server;
  ControlServer server(kAnyIpv6Port, "secret", at_server.server_events(), {});
  EXPECT_EQ(reach(server.endpoint(), "secret", soon()), Reach::listens);
  EXPECT_EQ(reach(server.endpoint(), "of another job", soon()), Reach::other_job);
}

TEST_F(Ipv6, RequestsAreAnswered) {
  RequestServer server(kAnyIpv6Port, "a token of the request tests",
                       {.handle =
                            [](Request request, Responder responder) {
                              responder.reply({.header = request.client, .tensors = {}});
                            }},
                       {});
  RequestClient client(server.endpoint(), "a token of the request tests", soon(),
                       {.path = RequestPath::tcp});
  EXPECT_THAT(client.server(), StartsWith("[::1]:"));
  const Reply reply = client.call({.header = "who", .tensors = {}}, Places{}, soon());
  EXPECT_THAT(reply.header, AllOf(StartsWith("[::1]:"), HasSubstr("pid")));
}

TEST_F(Ipv6, APortThatIsTakenIsNamedInBrackets) {
  asio::io_context context;
  const auto first = listen_on(context, kAnyIpv6Port);
  const Endpoint taken{"::1", first.local_endpoint().port()};
  try {
    listen_on(context, taken);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), HasSubstr("cannot listen on " + taken.describe()));
  }
}

TEST_F(Ipv6, EveryNetworkIsRefused) {
  asio::io_context context;
  EXPECT_THROW(listen_on(context, {"::", 0}), Error);
}

TEST(ListenOn, TakesTheFirstAddressOfANameThatThisMachineHas) {
  asio::io_context context;
  // The first is reserved for documentation (RFC 5737), like ::1 on a machine without IPv6.
  const std::vector<asio::ip::tcp::endpoint> addresses{{asio::ip::make_address("198.51.100.7"), 0},
                                                       {asio::ip::make_address("127.0.0.1"), 0}};
  const auto acceptor = listen_on_first(context, {"localhost", 0}, addresses);
  EXPECT_EQ(acceptor.local_endpoint().address().to_string(), "127.0.0.1");
  EXPECT_THROW(listen_on_first(context, {"elsewhere", 0}, {addresses[0]}), Error);
}

}  // namespace
}  // namespace trireme::net::ipv6_test
