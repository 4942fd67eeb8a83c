// Strangers send bytes of any kind to a control port: cut off anywhere, slowly, in great numbers.
// The job continues, and nothing of it stays.
#include "events.h"
#include "hand_made.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <atomic>
#include <filesystem>
#include <list>
#include <memory>
#include <random>
#include <thread>

namespace trireme::net::flood_test {
namespace {

using testing::HasSubstr;

size_t open_descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

class Flood : public testing::Test {
 protected:
  void SetUp() override { testing::internal::CaptureStderr(); }
  void TearDown() override {
    server.reset();  // The last lines of the log are written now.
    log = testing::internal::GetCapturedStderr();
    EXPECT_LT(std::count(log.begin(), log.end(), '\n'), 100) << "the log was flooded";
  }
  void expect_the_job_continues() {
    const size_t before = at_server.look([&] { return at_server.received.size(); });
    worker.send({{"op", "still here"}});
    EXPECT_TRUE(at_server.wait([&] { return at_server.received.size() > before; }));
  }
  Recorder at_server;
  std::unique_ptr<ControlServer> server =
      std::make_unique<ControlServer>(kAnyPort, "secret", at_server.server_events(),
                                      ControlOptions{.handshake_timeout = Milliseconds(2000)});
  ControlClient worker{server->endpoint(), "secret", {}, soon()};
  std::string log;
};

TEST_F(Flood, AHandshakeMayBeCutOffAnywhere) {
  for (size_t length = 0; length <= sizeof(Hello); length += 3) {
    HandMade client(server->endpoint());
    client.raw.write(bytes_of(client.hello).substr(0, length));
  }
  for (size_t length = 0; length < sizeof(Mac); length += 3) {
    HandMade client(server->endpoint());
    client.greet();
    client.raw.write(bytes_of(client.transcript().client_proof("secret")).substr(0, length));
  }
  expect_the_job_continues();
  EXPECT_EQ(at_server.look([&] { return at_server.opened.size(); }), 1u);
}

TEST_F(Flood, RandomBytesLeaveNothingBehind) {
  std::mt19937 random(25);
  const auto below = [&](size_t bound) { return random() % bound; };
  const auto attack = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) {
      HandMade client(server->endpoint());
      std::string bytes = bytes_of(client.hello);
      switch (below(5)) {
        case 0:  // Random bytes.
          bytes.resize(below(400));
          for (char& byte : bytes) byte = static_cast<char>(random());
          break;
        case 1:  // A hello with one wrong byte or more.
          for (size_t changes = 1 + below(4); changes > 0; --changes)
            bytes[below(bytes.size())] = static_cast<char>(random());
          break;
        case 2:  // More bytes than a hello has.
          bytes += std::string(below(100'000), static_cast<char>(random()));
          break;
        case 3:  // A hello that is cut off.
          bytes.resize(below(bytes.size()));
          break;
        case 4:  // A member of the job that sends nonsense under its signature.
          if (client.shake()) {
            std::string cbor(1 + below(200), '\0');
            for (char& byte : cbor) byte = static_cast<char>(random());
            bytes = client.frame(cbor, below(2));
          }
          break;
      }
      client.raw.write(bytes);
    }
    // All are gone as soon as one that comes after them is gone.
    RawClient last(server->endpoint());
    last.write("GET / HTTP/1.1\r\n");
    EXPECT_TRUE(last.closed_by_server());
  };
  attack(300);
  const size_t descriptors = open_descriptors();
  const auto memory = mallinfo2().uordblks;
  attack(1500);
  expect_the_job_continues();
  for (const Deadline deadline = soon(); open_descriptors() > descriptors + 5;)
    ASSERT_FALSE(deadline.expired()) << open_descriptors() << " descriptors, " << descriptors;
  EXPECT_LT(mallinfo2().uordblks, memory + (4u << 20));
}

// 96 workers of one host start at once, while strangers of the same host attack the server.
TEST_F(Flood, TheJobsOwnProcessesAreNotLockedOut) {
  std::atomic<bool> over{false};
  std::atomic<int> attacks{0};
  std::vector<std::jthread> strangers;
  for (int kind = 0; kind < 4; ++kind)
    strangers.emplace_back([&, kind] {
      std::list<RawClient> held;
      while (!over) {
        try {
          RawClient& stranger = held.emplace_back(server->endpoint());
          if (kind == 1) stranger.write("GET / HTTP/1.1\r\n\r\n");
          if (kind == 2) stranger.write(std::string(kMagic) + "half a hello");
          if (kind == 3) {
            stranger.write(bytes_of(make_hello("guess", Purpose::worker, {}, stranger.remote())));
          }
          ++attacks;
        } catch (const std::system_error&) {
        }
        if (held.size() > 40) held.pop_front();
      }
    });
  while (attacks < 400) std::this_thread::yield();

  std::vector<std::unique_ptr<ControlClient>> workers(96);
  std::vector<std::jthread> starting;
  for (auto& each : workers)
    starting.emplace_back([&] {
      each = std::make_unique<ControlClient>(server->endpoint(), "secret", ClientEvents{},
                                             Deadline::after(Milliseconds(30000)));
    });
  starting.clear();
  for (const auto& each : workers) {
    ASSERT_TRUE(each);
    each->send({{"op", "here"}});
  }
  EXPECT_TRUE(at_server.wait([&] { return at_server.received.size() == 96; }));
  EXPECT_EQ(at_server.look([&] { return at_server.closed.size(); }), 0u);
  over = true;
  strangers.clear();
  expect_the_job_continues();
}

TEST_F(Flood, TheLogHasAFewLinesAndACount) {
  for (int i = 0; i < 300; ++i) RawClient(server->endpoint()).write("noise, noise");
  RawClient last(server->endpoint());
  last.write("GET / HTTP/1.1\r\n");
  EXPECT_TRUE(last.closed_by_server());
  expect_the_job_continues();
  TearDown();
  EXPECT_THAT(log, HasSubstr("more from 127.0.0.1 in the last 10.0 s"));
  SetUp();
}

}  // namespace
}  // namespace trireme::net::flood_test
