// Request channels whose other end is killed, stopped, or not what it should be.
#include "requests.h"

#include <gmock/gmock.h>
#include <trireme/net/requests/frame.h>
#include <chrono>
#include "../base/expect_error.h"
#include "hand_made.h"

namespace trireme::net::requests_lost_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class LostRequests : public OnEachPath {};
INSTANTIATE_TEST_SUITE_P(Paths, LostRequests, testing::Values(RequestPath::tcp, RequestPath::shm),
                         path_name);

Milliseconds time_of(const std::function<void()>& action) {
  const auto start = Deadline::Clock::now();
  action();
  return std::chrono::duration_cast<Milliseconds>(Deadline::Clock::now() - start);
}

// Answers "echo" and keeps everything else without an answer.
void echo_or_keep(Request request, Responder responder) {
  static std::mutex mutex;
  static std::vector<Responder> kept;
  if (request.head.header == "echo") return echo(std::move(request), std::move(responder));
  std::lock_guard lock(mutex);
  kept.push_back(std::move(responder));
}

TEST_P(LostRequests, OfAKilledServerEndAtOnce) {
  ServerProcess process({.handle = echo_or_keep}, server_options());
  RequestClient caller(process.endpoint, kRequestToken, in_ten_seconds(), client_options());
  expect_echo(caller, pattern(4000, 1));
  std::vector<std::thread> threads;
  Deadline::Clock::time_point killed;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      EXPECT_THAT(
          message_of(
              ErrorCode::peer_lost,
              [&] { caller.call({.header = "wait"}, Places{}, Deadline::after(kLongestWait)); }),
          HasSubstr(process.endpoint.describe()));
    });
  ::usleep(100'000);
  killed = Deadline::Clock::now();
  process.signal(SIGKILL);
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Deadline::Clock::now() - killed, Milliseconds(1000));
}

TEST_P(LostRequests, OfAStoppedServerEndAfterTheSilenceLimit) {
  ServerProcess process({.handle = echo_or_keep}, server_options());
  ChannelOptions options = client_options();
  options.silence = Milliseconds(300);
  RequestClient caller(process.endpoint, kRequestToken, in_ten_seconds(), options);
  expect_echo(caller, pattern(4000, 1));
  std::thread waits([&] {
    EXPECT_THAT(
        message_of(
            ErrorCode::peer_lost,
            [&] { caller.call({.header = "wait"}, Places{}, Deadline::after(kLongestWait)); }),
        HasSubstr("nothing was heard from the server for 300 ms"));
  });
  ::usleep(600'000);  // The limit alone does not end the call.
  process.signal(SIGSTOP);
  EXPECT_LT(time_of([&] { waits.join(); }), Milliseconds(2000));
  // The next call does not wait again.
  EXPECT_LT(time_of([&] {
              message_of(ErrorCode::peer_lost,
                         [&] { caller.call({.header = "x"}, Places{}, in_ten_seconds()); });
            }),
            Milliseconds(100));
  process.signal(SIGCONT);
}

// Runs a client in a process of its own, which waits for an answer that never comes.
pid_t waiting_client(const Endpoint& endpoint, const ChannelOptions& options) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    RequestClient caller(endpoint, kRequestToken, in_ten_seconds(), options);
    caller.call({.header = "wait"}, Places{}, Deadline::after(kLongestWait));
  } catch (const std::exception&) {
  }
  ::_exit(0);
}

TEST_P(LostRequests, OfAKilledOrStoppedClientAreCancelled) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    std::mutex mutex;
    std::vector<Responder> kept;
    RequestServerOptions options = server_options(1);
    options.silence = Milliseconds(300);
    RequestServer here({"127.0.0.1", 0}, kRequestToken,
                       {.handle =
                            [&](Request, Responder responder) {
                              std::lock_guard lock(mutex);
                              kept.push_back(std::move(responder));
                            }},
                       options);
    const pid_t pid = waiting_client(here.endpoint(), client_options());
    const auto look = [&](auto read) {
      std::lock_guard lock(mutex);
      return read();
    };
    ASSERT_TRUE(eventually([&] { return look([&] { return kept.size() == 1; }); }));
    EXPECT_FALSE(look([&] { return kept[0].cancelled(); }));
    EXPECT_EQ(here.clients(), 1);
    ::kill(pid, signal);
    EXPECT_LT(time_of([&] {
                EXPECT_TRUE(eventually([&] { return look([&] { return kept[0].cancelled(); }); }));
              }),
              Milliseconds(2000));
    EXPECT_EQ(here.clients(), 0);
    EXPECT_FALSE(kept[0].reply({.header = "to nobody"}));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

// A client that stops in the middle of a request or of its reply holds the server's only worker
// no longer than the silence limit.
TEST_P(LostRequests, OfAStoppedClientHoldUpNoOther) {
  RequestServerOptions options = server_options(1);
  options.silence = Milliseconds(300);
  const Running running = start({.handle = echo}, options);
  for (int i = 0; i < 4; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      RequestClient caller(server->endpoint(), kRequestToken, in_ten_seconds(), client_options());
      const Bytes sent = pattern(8 << 20, 1);
      Bytes back(sent.size());
      for (;;)
        caller.call({.header = "echo", .tensors = {tensor_of(sent)}}, {back}, in_ten_seconds());
    }
    EXPECT_TRUE(eventually([&] { return server->clients() == 2; }));
    ::usleep(7000 * static_cast<unsigned>(i));
    ::kill(pid, SIGSTOP);
    EXPECT_LT(time_of([&] { expect_echo(*client, pattern(100, i)); }), Milliseconds(3000));
    EXPECT_TRUE(eventually([&] { return server->clients() == 1; }));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

class RequestStranger : public OnEachPath {
 protected:
  void SetUp() override { testing::internal::CaptureStderr(); }
  void TearDown() override { log(); }
  std::string log() {
    server.reset();
    if (std::exchange(logged_, true)) return {};
    return testing::internal::GetCapturedStderr();
  }
  bool logged_ = false;
};
INSTANTIATE_TEST_SUITE_P(Paths, RequestStranger, testing::Values(RequestPath::tcp), path_name);

TEST_P(RequestStranger, WithAnotherTokenIsRefused) {
  const Running running = start({.handle = echo});
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument,
                 [&] { RequestClient(server->endpoint(), "another token", in_ten_seconds()); }),
      HasSubstr("job token"));
  expect_echo(*client, pattern(10, 1));
}

TEST_P(RequestStranger, OfAnotherServiceOrPurposeIsRefused) {
  const Running running = start({.handle = echo});
  ChannelOptions options = client_options();
  options.service = "serving";
  EXPECT_THAT(message_of(ErrorCode::timeout,
                         [&] {
                           RequestClient(server->endpoint(), kRequestToken,
                                         Deadline::after(Milliseconds(200)), options);
                         }),
              HasSubstr("does not expect this connection"));
  HandMade worker(server->endpoint(), kRequestToken, Purpose::worker);
  EXPECT_EQ(worker.greet().decision, Decision::wrong_purpose);
  expect_echo(*client, pattern(10, 1));
}

TEST_P(RequestStranger, ThatSendsRubbishOrNothingIsDroppedWhileOthersWork) {
  RequestServerOptions options = server_options();
  options.handshake_timeout = Milliseconds(300);
  const Running running = start({.handle = echo}, options);
  RawClient silent(server->endpoint()), rubbish(server->endpoint());
  rubbish.write(std::string(100000, 'x'));
  EXPECT_TRUE(rubbish.closed_by_server());
  expect_echo(*client, pattern(5000, 1));
  EXPECT_EQ(server->clients(), 1);
  EXPECT_TRUE(silent.closed_within(Milliseconds(3000)));
  EXPECT_THAT(log(), HasSubstr("not Trireme's protocol"));
}

// A peer that has proven the token and opened its channel by hand.
struct ByHand : HandMade {
  explicit ByHand(const Endpoint& server)
      : HandMade(server, kRequestToken, Purpose::requests, subject_of("requests")) {
    EXPECT_TRUE(shake());
    raw.write(frame(Json{{"name", "by hand"},
                         {"path", "tcp"},
                         {"place", "elsewhere"},
                         {"silence_ms", 10000},
                         {"max_header_bytes", 1000},
                         {"max_payload_bytes", 1000}},
                    0));
    const std::string length = raw.read(4);
    raw.read(static_cast<uint8_t>(length[2]) * 256u + static_cast<uint8_t>(length[3]) + 16);
    raw.write(frame(Json{{"path", "tcp"}}, 1));
  }
  void send(const FramePrefix& prefix, const std::string& rest = {}) {
    raw.write(bytes_of(prefix) + rest);
  }
};

TEST_P(RequestStranger, ThatBreaksTheProtocolAfterItsProofIsClosedAndNamed) {
  const Running running = start({.handle = echo});
  const std::vector<std::pair<FramePrefix, std::string>> wrong = {
      {{.kind = FrameKind::request, .header_bytes = 3u << 20}, "a header of"},
      {{.kind = FrameKind::request, .payload_bytes = 1ull << 50}, "a payload of"},
      {{.kind = FrameKind::request, .tensors = 1u << 20}, "tensors in one frame"},
      {{.kind = FrameKind::request, .notes_bytes = 5, .tensors = 1}, "cut off"},
      {{.kind = FrameKind::request, .payload_bytes = 8}, "do not fit"},
      {{.kind = FrameKind::reply}, "an answer from a client"},
      {{.mark = 7, .kind = FrameKind::request}, "do not begin a frame"},
      {{.kind = static_cast<FrameKind>(9)}, "do not begin a frame"},
  };
  std::vector<std::string> complaints;
  for (const auto& [prefix, complaint] : wrong) {
    ByHand peer(server->endpoint());
    peer.send(prefix, std::string(100, '\0'));
    EXPECT_TRUE(peer.raw.closed_by_server()) << complaint;
    complaints.push_back(complaint);
  }
  expect_echo(*client, pattern(5000, 1));
  const std::string lines = log();
  for (const std::string& complaint : complaints) EXPECT_THAT(lines, HasSubstr(complaint));
}

TEST_P(RequestStranger, ThatSendsHalfARequestHoldsNoWorker) {
  const Running running = start({.handle = echo}, server_options(1));
  ByHand peer(server->endpoint());
  peer.send({.kind = FrameKind::request, .id = 1, .header_bytes = 10}, "half");
  for (int i = 0; i < 50; ++i) expect_echo(*client, pattern(1000, i));
  peer.raw.write("a whole");
  peer.raw.write(std::string(1, '!'));
  EXPECT_EQ(server->clients(), 2);
}

TEST_P(RequestStranger, ThatChangesTheOpeningIsDropped) {
  const Running running = start({.handle = echo});
  HandMade peer(server->endpoint(), kRequestToken, Purpose::requests, subject_of("requests"));
  EXPECT_TRUE(peer.shake());
  std::string opening = peer.frame(Json{{"path", "tcp"}}, 0);
  opening.back() ^= 1;
  peer.raw.write(opening);
  EXPECT_TRUE(peer.raw.closed_by_server());
  expect_echo(*client, pattern(10, 1));
  EXPECT_THAT(log(), HasSubstr("not signed"));
}

TEST(RequestPaths, OnOneHostAreSharedMemoryUnlessOneEndWantsTcp) {
  RequestServerOptions options;
  RequestServer here({"127.0.0.1", 0}, kRequestToken, {.handle = echo}, options);
  ChannelOptions tcp;
  tcp.path = RequestPath::tcp;
  EXPECT_EQ(RequestClient(here.endpoint(), kRequestToken, in_ten_seconds()).path(),
            RequestPath::shm);
  EXPECT_EQ(RequestClient(here.endpoint(), kRequestToken, in_ten_seconds(), tcp).path(),
            RequestPath::tcp);
}

TEST(RequestPaths, ThatContradictEachOtherAndTooManyClientsAreRefusedWithTheReason) {
  RequestServerOptions options;
  options.path = RequestPath::tcp;
  options.max_clients = 1;
  RequestServer here({"127.0.0.1", 0}, kRequestToken, {.handle = echo}, options);
  ChannelOptions shm;
  shm.path = RequestPath::shm;
  const auto connect = [&](const ChannelOptions& wanted) {
    return RequestClient(here.endpoint(), kRequestToken, in_ten_seconds(), wanted).path();
  };
  EXPECT_THAT(message_of(ErrorCode::unsupported, [&] { connect(shm); }),
              HasSubstr("the server's path is tcp, the client's is shm"));
  const RequestClient only(here.endpoint(), kRequestToken, in_ten_seconds());
  EXPECT_THAT(message_of(ErrorCode::unsupported, [&] { connect({}); }),
              HasSubstr("has 1 clients"));
}

TEST(RequestOptions, ThatAreWrongAreNamedAtOnce) {
  const auto serve = [](RequestServerOptions options, RequestHandler handler = {.handle = echo}) {
    RequestServer({"127.0.0.1", 0}, kRequestToken, std::move(handler), options);
  };
  RequestServerOptions options;
  options.threads = 0;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { serve(options); }),
              HasSubstr("threads is 0"));
  options = {};
  options.silence = Milliseconds(1);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { serve(options); }),
              HasSubstr("silence"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { serve({}, {}); }),
              HasSubstr("handle is empty"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { request_path_from_string("udp"); }),
              HasSubstr("auto, tcp or shm"));
  EXPECT_THAT(message_of(ErrorCode::timeout,
                         [] {
                           RequestClient({"127.0.0.1", 1}, kRequestToken,
                                         Deadline::after(Milliseconds(50)));
                         }),
              HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace trireme::net::requests_lost_test
