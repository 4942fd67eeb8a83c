// A process that forwards a connection, or sends its bytes back, proves nothing to either end.
#include "relay.h"
#include "events.h"
#include "hand_made.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <asio/read.hpp>
#include "../base/expect_error.h"

namespace trireme::net::relay_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr Milliseconds kShort{300};

class RelayTest : public testing::Test {
 protected:
  void expect_nothing_passes(const Endpoint& relay) {
    EXPECT_EQ(reach(relay, "secret", soon()), Reach::other_job);
    for (const Purpose purpose : {Purpose::worker, Purpose::arrival, Purpose::scale})
      EXPECT_THAT(message_of(ErrorCode::timeout,
                             [&] {
                               ControlClient(relay, "secret", {}, Deadline::after(kShort),
                                             {.purpose = purpose});
                             }),
                  AllOf(HasSubstr(relay.describe()), HasSubstr("a relay, a tunnel or")));
    EXPECT_EQ(reach(server.endpoint(), "secret", soon()), Reach::listens);
    EXPECT_TRUE(at_server.wait([&] { return at_server.opened.size() == 1; }));
  }
  Recorder at_server;
  ControlServer server{kAnyPort, "secret", at_server.server_events()};
};

TEST_F(RelayTest, OnAnotherPortConvincesNeitherEnd) {
  const Relay relay(server.endpoint());
  expect_nothing_passes(relay.endpoint());
}

TEST_F(RelayTest, OnAnotherAddressWithTheSamePortConvincesNeitherEnd) {
  const Relay relay(server.endpoint(), "127.0.0.2", server.endpoint().port);
  expect_nothing_passes(relay.endpoint());
}

TEST_F(RelayTest, ThatCorrectsTheAddressBreaksTheSeal) {
  const Relay relay(server.endpoint(), "127.0.0.1", 0, [this](std::string& bytes) {
    if (bytes.size() != sizeof(Hello)) return;
    Hello hello = message_from<Hello>(bytes);
    hello.dialled = wire_address({asio::ip::make_address("127.0.0.1"),
                                  static_cast<asio::ip::port_type>(server.endpoint().port)});
    bytes = bytes_of(hello);
  });
  EXPECT_EQ(reach(relay.endpoint(), "secret", soon()), Reach::other_job);
  message_of(ErrorCode::invalid_argument, [&] {
    ControlClient(relay.endpoint(), "secret", {}, Deadline::after(Milliseconds(2000)));
  });
  EXPECT_EQ(at_server.look([&] { return at_server.opened.size(); }), 0u);
}

TEST_F(RelayTest, TheServerSaysWhatHappened) {
  testing::internal::CaptureStderr();
  const Relay relay(server.endpoint());
  EXPECT_EQ(reach(relay.endpoint(), "secret", soon()), Reach::other_job);
  server.stop();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("called another address, and a relay forwarded the connection"));
}

// Sends the client's own bytes back to it.
class Mirror {
 public:
  Mirror() : thread_([this] { run(); }) {}
  ~Mirror() { thread_.join(); }
  Endpoint endpoint() const { return {"127.0.0.1", acceptor_.local_endpoint().port()}; }

 private:
  void run() {
    asio::ip::tcp::socket client = acceptor_.accept();
    Hello hello;
    std::error_code ignored;
    asio::read(client, asio::buffer(&hello, sizeof hello), ignored);
    const Challenge challenge{hello.magic, Decision::accepted, hello.nonce};
    asio::write(client, asio::buffer(&challenge, sizeof challenge), ignored);
    Answer answer{Decision::accepted, {}};
    asio::read(client, asio::buffer(answer.proof), ignored);
    asio::write(client, asio::buffer(&answer, sizeof answer), ignored);
  }
  asio::io_context context_;
  asio::ip::tcp::acceptor acceptor_{context_, {asio::ip::make_address("127.0.0.1"), 0}};
  std::thread thread_;
};

TEST(MirrorTest, AServerThatSendsTheClientsProofBackIsRefused) {
  const Mirror mirror;
  EXPECT_EQ(reach(mirror.endpoint(), "secret", soon()), Reach::other_job);
}

class Addresses : public testing::TestWithParam<const char*> {};

TEST_P(Addresses, AServerIsReachedByTheNameItListensOn) {
  std::unique_ptr<ControlServer> server;
  Recorder at_server;
  try {
    server = std::make_unique<ControlServer>(Endpoint{GetParam(), 0}, "secret",
                                             at_server.server_events());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  ControlClient client(server->endpoint(), "secret", {}, soon());
  client.send({{"op", "here"}});
  EXPECT_TRUE(at_server.wait([&] { return at_server.received.size() == 1; }));
}
INSTANTIATE_TEST_SUITE_P(OfThisHost, Addresses,
                         testing::Values("127.0.0.1", "127.0.0.7", "::1", "localhost",
                                         "ip6-localhost", "::ffff:127.0.0.1"));

TEST(AddressesTest, ANameAndItsAddressAreOneServer) {
  Recorder at_server;
  const ControlServer server(kAnyPort, "secret", at_server.server_events());
  EXPECT_EQ(reach({"localhost", server.endpoint().port}, "secret", soon()), Reach::listens);
}

}  // namespace
}  // namespace trireme::net::relay_test
