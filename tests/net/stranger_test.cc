#include "events.h"
#include "raw_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/net/framing.h>
#include <trireme/net/handshake.h>

namespace trireme::net {
namespace {

using testing::HasSubstr;

size_t occurrences(const std::string& text, const std::string& of) {
  size_t count = 0;
  for (size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++count;
  return count;
}

// A server with a short patience and one worker, which must be served whatever strangers do.
class Stranger : public testing::Test {
 protected:
  void SetUp() override { testing::internal::CaptureStderr(); }
  // Checks that the job goes on; stops the server and returns what was logged.
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

TEST_F(Stranger, WhoSpeaksAnotherProtocolIsDroppedAndLoggedOnce) {
  RawClient browser(server->endpoint());
  browser.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(browser.closed_by_server());
  const std::string log = end_job();
  EXPECT_EQ(occurrences(log, browser.local()), 1u) << log;
  EXPECT_THAT(log, HasSubstr("not Trireme's protocol"));
}

TEST_F(Stranger, WhoIsSilentIsDroppedAfterAWhile) {
  RawClient silent(server->endpoint());
  EXPECT_TRUE(silent.closed_by_server());
  const std::string log = end_job();
  EXPECT_EQ(occurrences(log, silent.local()), 1u) << log;
  EXPECT_THAT(log, HasSubstr("within 200 ms"));
}

TEST_F(Stranger, WhoStopsHalfWayIsDroppedAfterAWhile) {
  RawClient half(server->endpoint());
  half.write(std::string(kMagic) + "half a nonce");
  EXPECT_TRUE(half.closed_by_server());
  RawClient no_proof(server->endpoint());
  no_proof.write(std::string(kMagic) + std::string(32, 'n'));
  EXPECT_EQ(no_proof.read(40).size(), 40u);
  EXPECT_TRUE(no_proof.closed_by_server());
  const std::string log = end_job();
  EXPECT_EQ(occurrences(log, half.local()), 1u) << log;
  EXPECT_EQ(occurrences(log, no_proof.local()), 1u) << log;
}

TEST_F(Stranger, WhoHangsUpIsLoggedOnce) {
  { RawClient hasty(server->endpoint()); }
  RawClient marker(server->endpoint());
  EXPECT_TRUE(marker.closed_by_server());
  EXPECT_EQ(occurrences(end_job(), "left before proving"), 1u);
}

TEST_F(Stranger, WhoSendsMegabytesIsNotRead) {
  RawClient flood(server->endpoint());
  flood.write(std::string(1 << 20, '\xff'));
  EXPECT_TRUE(flood.closed_by_server());
  end_job();
}

TEST_F(Stranger, TheOldestOfTooManyIsDropped) {
  Recorder at_narrow;
  const ControlOptions narrow{.handshake_timeout = Milliseconds(60000), .max_strangers = 4};
  auto server_of_four =
      std::make_unique<ControlServer>(kAnyPort, "secret", at_narrow.server_events(), narrow);
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (int i = 0; i < 12; ++i)
    crowd.push_back(std::make_unique<RawClient>(server_of_four->endpoint()));
  ControlClient late(server_of_four->endpoint(), "secret", {}, soon());
  for (size_t i = 0; i < 9; ++i)
    EXPECT_TRUE(crowd[i]->closed_by_server());  // The late friend took the ninth place.
  late.send({{"op", "here"}});
  EXPECT_TRUE(at_narrow.wait([&] { return at_narrow.received.size() == 1; }));
  server_of_four.reset();
  const std::string log = end_job();
  EXPECT_EQ(occurrences(log, "more than 4 connections without proof"), 9u);
  for (size_t i = 0; i < 12; ++i)
    EXPECT_EQ(occurrences(log, crowd[i]->local() + " on"), i < 9 ? 1u : 0u) << log;
}

TEST_F(Stranger, AFriendWhoSendsGarbageIsClosedWithTheReason) {
  RawClient raw(server->endpoint());
  raw.write(std::string(kMagic) + std::string(32, '\0'));
  Nonce nonce;
  const std::string hello = raw.read(40);
  ASSERT_EQ(hello.size(), 40u);
  std::copy_n(hello.begin() + 8, 32, nonce.begin());
  const Proof proof = prove("secret", Role::client, Nonce{}, nonce);
  raw.write(std::string(proof.begin(), proof.end()) + std::string("\0\0\0\x03", 4) +
            "\xa1\xff\xff");
  EXPECT_EQ(raw.read(33).size(), 33u);
  EXPECT_TRUE(raw.closed_by_server());
  ASSERT_TRUE(at_server.wait([&] { return at_server.closed.size() == 1; }));
  EXPECT_THAT(at_server.closed.begin()->second, HasSubstr("not one CBOR value"));
  server.reset();
  EXPECT_EQ(occurrences(testing::internal::GetCapturedStderr(), raw.local()), 1u);
}

}  // namespace
}  // namespace trireme::net
