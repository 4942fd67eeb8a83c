#include "events.h"
#include "hand_made.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/net/framing.h>

namespace trireme::net::stranger_test {
namespace {

using testing::HasSubstr;

size_t occurrences(const std::string& text, const std::string& of) {
  size_t count = 0;
  for (size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++count;
  return count;
}

// A server with a short patience and one worker, which it must serve whatever strangers do.
class Stranger : public testing::Test {
 protected:
  void SetUp() override { testing::internal::CaptureStderr(); }
  // Checks that the job continues. Stops the server and returns its log.
  std::string end_job() {
    worker.send({{"op", "still here"}});
    EXPECT_TRUE(at_server.wait([&] { return at_server.received.size() == 1; }));
    EXPECT_EQ(at_server.look([&] { return at_server.opened.size(); }), 1u);
    server.reset();
    return testing::internal::GetCapturedStderr();
  }

  Recorder at_server;
  std::unique_ptr<ControlServer> server =
      std::make_unique<ControlServer>(kAnyPort, "secret", at_server.server_events(),
                                      ControlOptions{.handshake_timeout = Milliseconds(200)});
  ControlClient worker{server->endpoint(), "secret", {}, soon()};
};

TEST_F(Stranger, ThatSpeaksAnotherProtocolIsDroppedAndLoggedOnce) {
  RawClient browser(server->endpoint());
  browser.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(browser.closed_by_server());
  const std::string log = end_job();
  EXPECT_EQ(occurrences(log, browser.local()), 1u) << log;
  EXPECT_THAT(log, HasSubstr("not Trireme's protocol"));
}

TEST_F(Stranger, ThatIsSilentIsDroppedAfterAWhile) {
  RawClient silent(server->endpoint());
  EXPECT_TRUE(silent.closed_by_server());
  const std::string log = end_job();
  EXPECT_EQ(occurrences(log, silent.local()), 1u) << log;
  EXPECT_THAT(log, HasSubstr("within 200 ms"));
}

TEST_F(Stranger, ThatStopsHalfWayIsDroppedAfterAWhile) {
  RawClient half(server->endpoint());
  half.write(std::string(kMagic) + "half a nonce");
  EXPECT_TRUE(half.closed_by_server());
  HandMade without_proof(server->endpoint());
  EXPECT_EQ(without_proof.greet().decision, Decision::accepted);
  RawClient& no_proof = without_proof.raw;
  EXPECT_TRUE(no_proof.closed_by_server());
  const std::string log = end_job();
  EXPECT_EQ(occurrences(log, half.local()), 1u) << log;
  EXPECT_EQ(occurrences(log, no_proof.local()), 1u) << log;
}

TEST_F(Stranger, ThatHangsUpIsLoggedOnce) {
  { RawClient hasty(server->endpoint()); }
  RawClient marker(server->endpoint());
  EXPECT_TRUE(marker.closed_by_server());
  EXPECT_EQ(occurrences(end_job(), "left before proving"), 1u);
}

TEST_F(Stranger, ThatSendsMegabytesIsNotRead) {
  RawClient flood(server->endpoint());
  flood.write(std::string(1 << 20, '\xff'));
  EXPECT_TRUE(flood.closed_by_server());
  end_job();
}

TEST_F(Stranger, IsDroppedIfItIsTheOldestOfTooMany) {
  Recorder at_narrow;
  const ControlOptions narrow{.handshake_timeout = Milliseconds(60000), .max_strangers = 4};
  auto server_of_four =
      std::make_unique<ControlServer>(kAnyPort, "secret", at_narrow.server_events(), narrow);
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (int i = 0; i < 12; ++i)
    crowd.push_back(std::make_unique<RawClient>(server_of_four->endpoint()));
  for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(crowd[i]->closed_by_server());
  ControlClient late(server_of_four->endpoint(), "secret", {}, soon());
  late.send({{"op", "here"}});
  EXPECT_TRUE(at_narrow.wait([&] { return at_narrow.received.size() == 1; }));
  server_of_four.reset();
  const std::string log = end_job();
  EXPECT_EQ(occurrences(log, "more than 4 connections without proof"), 5u) << log;
  EXPECT_THAT(log, HasSubstr("... and "));
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(occurrences(log, crowd[i]->local() + ":"), 1u) << log;
}

TEST_F(Stranger, OfOneAddressCannotTakeTheRoomOfAnother) {
  Recorder at_narrow;
  const ControlOptions narrow{.handshake_timeout = Milliseconds(60000),
                              .max_strangers = 5,
                              .max_strangers_per_address = 50};
  ControlServer server_of_five(kAnyPort, "secret", at_narrow.server_events(), narrow);
  RawClient other(server_of_five.endpoint(), "127.0.0.9");
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (int i = 0; i < 20; ++i)
    crowd.push_back(std::make_unique<RawClient>(server_of_five.endpoint()));
  for (size_t i = 0; i < 16; ++i) EXPECT_TRUE(crowd[i]->closed_by_server());
  other.write("GET / HTTP/1.1");  // The server kept it, so its bytes end the connection.
  EXPECT_TRUE(other.closed_by_server());
  server_of_five.stop();
  EXPECT_THAT(end_job(), HasSubstr("127.0.0.9"));
}

TEST_F(Stranger, ThatSendsAByteNowAndThenIsDroppedAtTheDeadline) {
  RawClient slow(server->endpoint());
  HandMade friendly(server->endpoint());
  const std::string hello = bytes_of(friendly.hello);
  const auto start = Deadline::Clock::now();
  // Sends more bytes than fit into the deadline at this pace.
  bool is_closed = false;
  for (size_t byte = 0; byte < 30 && !is_closed; ++byte) {
    slow.write(hello.substr(byte, 1));
    is_closed = slow.closed_within(Milliseconds(20));
  }
  EXPECT_TRUE(is_closed);
  EXPECT_LT(Deadline::Clock::now() - start, std::chrono::seconds(10));
  EXPECT_THAT(end_job(), HasSubstr("within 200 ms"));
}

TEST_F(Stranger, AMemberThatSendsGarbageIsClosedWithTheReason) {
  HandMade odd(server->endpoint());
  ASSERT_TRUE(odd.shake());
  odd.raw.write(odd.frame(std::string("\xa1\xff\xff"), 0));
  EXPECT_TRUE(odd.raw.closed_by_server());
  ASSERT_TRUE(at_server.wait([&] { return at_server.closed.size() == 1; }));
  EXPECT_THAT(at_server.closed.begin()->second, HasSubstr("not one CBOR value"));
  server.reset();
  EXPECT_EQ(occurrences(testing::internal::GetCapturedStderr(), odd.raw.local()), 1u);
}

}  // namespace
}  // namespace trireme::net::stranger_test
