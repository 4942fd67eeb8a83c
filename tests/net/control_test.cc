#include "events.h"
#include "silent_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <thread>

namespace trireme::net::control_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Control : public testing::Test {
 protected:
  std::unique_ptr<ControlServer> serve(ControlOptions options = {}) {
    return std::make_unique<ControlServer>(kAnyPort, "secret", at_server.server_events(), options);
  }
  std::unique_ptr<ControlClient> join(const Endpoint& endpoint,
                                      const std::string& token = "secret") {
    return std::make_unique<ControlClient>(endpoint, token, at_client.client_events(), soon());
  }
  ConnectionId first_connection() {
    EXPECT_TRUE(at_server.wait([&] { return !at_server.opened.empty(); }));
    return at_server.look([&] { return at_server.opened.begin()->first; });
  }

  Recorder at_server;
  Recorder at_client;
};

TEST_F(Control, MessagesArriveInOrderBothWays) {
  const auto server = serve();
  const auto client = join(server->endpoint());
  const ConnectionId id = first_connection();
  for (int i = 0; i < 100; ++i) {
    client->send({{"number", i}});
    server->send(id, {{"number", -i}});
  }
  ASSERT_TRUE(at_server.wait([&] { return at_server.received.size() == 100; }));
  ASSERT_TRUE(at_client.wait([&] { return at_client.received.size() == 100; }));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(at_server.look([&] { return at_server.received[i].second["number"]; }), i);
    EXPECT_EQ(at_client.look([&] { return at_client.received[i].second["number"]; }), -i);
  }
}

TEST_F(Control, TellsAServerThatHasEndedFromOneThatIsSilent) {
  const auto within = [](int milliseconds) { return Deadline::after(Milliseconds(milliseconds)); };
  auto server = serve();
  const Endpoint endpoint = server->endpoint();
  EXPECT_EQ(reach(endpoint, "secret", soon()), Reach::listens);
  EXPECT_EQ(reach(endpoint, "of another job", soon()), Reach::other_job);
  server.reset();
  EXPECT_EQ(reach(endpoint, "secret", soon()), Reach::refused);
  const SilentPort stopped;
  EXPECT_EQ(reach(stopped.endpoint(), "secret", within(50)), Reach::silent);
}

TEST_F(Control, AMessageLargerThanAnySocketBufferArrivesWhole) {
  const auto server = serve();
  const auto client = join(server->endpoint());
  std::vector<uint8_t> bytes(20 << 20);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * i >> 3);
  client->send({{"value", Json::binary(bytes)}});
  ASSERT_TRUE(at_server.wait([&] { return at_server.received.size() == 1; }));
  EXPECT_EQ(at_server.received[0].second["value"].get_binary(), Json::binary_t(bytes));
}

TEST_F(Control, ManyThreadsMaySendAtOnce) {
  const auto server = serve();
  const auto client = join(server->endpoint());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) client->send({{"text", std::string(1000, 'x')}});
    });
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(at_server.wait([&] { return at_server.received.size() == 200; }));
}

TEST_F(Control, AClientWaitsForAServerThatStartsLater) {
  // The server ends at once, so the port is free now.
  const Endpoint endpoint = serve()->endpoint();
  std::unique_ptr<ControlClient> client;
  std::thread waiting([&] { client = join(endpoint); });
  ControlServer late(endpoint, "secret", at_server.server_events());
  waiting.join();
  EXPECT_TRUE(at_server.wait([&] { return at_server.opened.size() == 1; }));
  EXPECT_EQ(client->local_address(), "127.0.0.1");
}

TEST_F(Control, WithoutAServerTheClientSaysWhereItTriedAndWhy) {
  const Endpoint nobody = serve()->endpoint();
  try {
    ControlClient(nobody, "secret", {}, Deadline::after(Milliseconds(100)));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(nobody.describe()), HasSubstr("100 ms"),
                                    HasSubstr("Connection refused")));
  }
}

// Answers every connection as a web server would.
class WebServer {
 public:
  Endpoint endpoint() const { return {"127.0.0.1", acceptor_.local_endpoint().port()}; }
  WebServer() {
    accept();
    thread_ = std::thread([this] { context_.run(); });
  }
  ~WebServer() {
    context_.stop();
    thread_.join();
  }

 private:
  void accept() {
    acceptor_.async_accept([this](std::error_code, asio::ip::tcp::socket socket) {
      std::string request(40, ' ');
      std::error_code ignored;
      asio::read(socket, asio::buffer(request), ignored);
      asio::write(socket, asio::buffer(std::string("HTTP/1.1 400 Bad Request\r\n\r\n")), ignored);
      accept();
    });
  }
  asio::io_context context_;
  asio::ip::tcp::acceptor acceptor_{context_, {asio::ip::make_address("127.0.0.1"), 0}};
  std::thread thread_;
};

TEST_F(Control, AnotherProgramOnThePortIsReported) {
  const WebServer web;
  try {
    ControlClient(web.endpoint(), "secret", {}, Deadline::after(Milliseconds(500)));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.what(), HasSubstr("does not speak this version of Trireme's protocol"));
  }
}

TEST_F(Control, AWrongTokenIsRefusedAtOnceWithTheRemedy) {
  const auto server = serve();
  const auto wait = Deadline::after(Milliseconds(60000));
  try {
    ControlClient(server->endpoint(), "guess", {}, wait);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("token"), HasSubstr(server->endpoint().describe()),
                                    HasSubstr("TRIREME_JOB_TOKEN")));
  }
  EXPECT_GT(wait.remaining(), Milliseconds(50000));
}

TEST_F(Control, AnEmptyTokenIsRefusedOnBothSides) {
  EXPECT_THROW(ControlServer(kAnyPort, "", {}), Error);
  EXPECT_THROW(ControlClient(kAnyPort, "", {}, soon()), Error);
}

TEST_F(Control, APortThatIsTakenIsNamedWithTheRemedy) {
  const auto server = serve();
  try {
    ControlServer(server->endpoint(), "secret", {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_EQ(
        error.what(),
        "[net] cannot listen on " + server->endpoint().describe() +
            ": Address already in use; try: another port, or stop the programme that holds it");
  }
}

TEST_F(Control, APortIsFreeAgainOnceItsServerHasEnded) {
  auto server = serve();
  const Endpoint endpoint = server->endpoint();
  const auto client = join(endpoint);
  first_connection();
  server.reset();
  EXPECT_NO_THROW(ControlServer(endpoint, "secret", {}));
}

TEST_F(Control, AnAddressOfAnotherMachineIsNamedBesideOurs) {
  try {
    ControlServer({"192.0.2.1", 0}, "secret", {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("192.0.2.1:0"), HasSubstr("lo (127.0.0.1)")));
  }
}

TEST_F(Control, ListeningOnEveryNetworkIsRefused) {
  for (const std::string host : {"0.0.0.0", "::"})
    EXPECT_THROW(ControlServer({host, 0}, "secret", {}), Error);
}

TEST_F(Control, AServerIsReachedAtItsAddressOnly) {
  const auto server = serve();
  EXPECT_THROW(ControlClient({"127.0.0.2", server->endpoint().port}, "secret", {},
                             Deadline::after(Milliseconds(50))),
               Error);
}

TEST_F(Control, MessagesSentBeforeCloseArrive) {
  const auto server = serve();
  const auto client = join(server->endpoint());
  const ConnectionId id = first_connection();
  for (int i = 0; i < 50; ++i) {
    // Bytes that are not read must not destroy the last messages.
    server->send(id, {{"noise", std::string(10000, 'x')}});
    client->send({{"number", i}});
  }
  const Deadline deadline = soon();
  client->close(deadline);
  EXPECT_FALSE(deadline.expired());
  ASSERT_TRUE(at_server.wait([&] { return at_server.closed.count(id) == 1; }));
  EXPECT_EQ(at_server.received.size(), 50u);
  EXPECT_EQ(at_server.closed[id], "connection closed");
  EXPECT_TRUE(at_client.closed.empty());
}

TEST_F(Control, TheServersLastMessagesArriveBeforeItCloses) {
  const auto server = serve();
  const auto client = join(server->endpoint());
  const ConnectionId id = first_connection();
  for (int i = 0; i < 50; ++i) server->send(id, {{"number", i}});
  server->close(id);
  ASSERT_TRUE(at_client.wait([&] { return at_client.closed.size() == 1; }));
  EXPECT_EQ(at_client.received.size(), 50u);
  EXPECT_EQ(at_client.closed[0], "connection closed");
}

TEST_F(Control, TheClientIsToldWhenTheServerEnds) {
  auto server = serve();
  const auto client = join(server->endpoint());
  first_connection();
  server.reset();
  EXPECT_TRUE(at_client.wait([&] { return at_client.closed.size() == 1; }));
  client->send({{"op", "anyone?"}});  // No one receives it, and it does no harm.
  client->close(soon());
}

TEST_F(Control, AnExceptionOfTheReceiverClosesThatConnectionOnly) {
  ServerEvents events = at_server.server_events();
  events.received = [note = events.received](ConnectionId id, Json message) {
    note(id, message.at("number"));
  };
  ControlServer server(kAnyPort, "secret", events);
  const auto bad = join(server.endpoint());
  const ConnectionId id = first_connection();
  const auto good = join(server.endpoint());
  bad->send({{"word", "x"}});
  ASSERT_TRUE(at_server.wait([&] { return at_server.closed.count(id) == 1; }));
  EXPECT_THAT(at_server.closed[id], HasSubstr("number"));
  good->send({{"number", 7}});
  EXPECT_TRUE(at_server.wait([&] { return at_server.received.size() == 1; }));
}

TEST_F(Control, AMessageOverTheLimitIsRefusedBeforeItIsSent) {
  const auto server = serve({.max_message_bytes = 1000});
  const auto client = join(server->endpoint());
  EXPECT_THROW(server->send(first_connection(), {{"text", std::string(1000, 'x')}}), Error);
  // This side's limit is larger, so the server closes the connection.
  client->send({{"text", std::string(2000, 'x')}});
  ASSERT_TRUE(at_server.wait([&] { return at_server.closed.size() == 1; }));
  EXPECT_THAT(at_server.closed.begin()->second, HasSubstr("more than 1000"));
}

TEST_F(Control, TheServerTicks) {
  const auto server = serve();
  EXPECT_TRUE(at_server.wait([&] { return at_server.ticks >= 3; }));
}

}  // namespace
}  // namespace trireme::net::control_test
