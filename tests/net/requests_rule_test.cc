// The rule by which a peer is lost: clients are stopped or killed while the server's threads are
// busy, and peers send wrong numbers or frames.
#include <sys/mman.h>
#include <trireme/net/requests/opening.h>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <atomic>
#include <fstream>
#include "../base/expect_error.h"
#include "requests.h"

#include <gmock/gmock.h>

namespace trireme::net::requests_rule_test {
namespace {

using testing::HasSubstr;

class RequestRule : public OnEachPath {
 protected:
  static constexpr Milliseconds kSilence{500};
  RequestServerOptions short_options(int threads) const {
    RequestServerOptions options = server_options(threads);
    options.silence = kSilence;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Paths, RequestRule, testing::Values(RequestPath::tcp, RequestPath::shm),
                         path_name);

// A client in a process of its own.
class ClientProcess {
 public:
  ClientProcess(const Endpoint& server, const ChannelOptions& options,
                const std::function<void(RequestClient&)>& work)
      : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      RequestClient client(server, kRequestToken, in_ten_seconds(), options);
      work(client);
    } catch (const std::exception&) {
    }
    ::_exit(0);
  }
  ~ClientProcess() { kill(); }
  void wait_until_stopped() { ::waitpid(pid_, nullptr, WUNTRACED); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

// All threads of the server write to the client that stopped, and more of its requests lie unread.
TEST_P(RequestRule, AStoppedClientWithRequestsUnderWayIsLostAndFreesTheServer) {
  const Bytes large = pattern(16 << 20, 1);
  const Running running = start({.handle =
                                     [&](Request request, Responder responder) {
                                       if (request.head.header != "large")
                                         return echo(std::move(request), std::move(responder));
                                       responder.reply({.tensors = {tensor_of(large)}});
                                     }},
                                short_options(2));
  ClientProcess process(server->endpoint(), client_options(), [&](RequestClient& stopped) {
    Bytes memory(large.size());
    std::vector<PendingReply> pending;
    for (int i = 0; i < 6; ++i)
      pending.push_back(stopped.start({.header = "large"}, into({memory}), in_ten_seconds()));
    ::raise(SIGSTOP);
  });
  process.wait_until_stopped();
  ::usleep(50'000);
  const auto began = Deadline::Clock::now();
  for (int i = 0; i < 3; ++i) expect_echo(*client, pattern(100, i));
  EXPECT_LT(Deadline::Clock::now() - began, Milliseconds(4000));
  EXPECT_TRUE(eventually([&] { return server->clients() == 1; }));
}

TEST_P(RequestRule, AKilledClientIsNoticedWhileAllThreadsAreBusy) {
  std::atomic<int> handled{0};
  std::atomic<bool> cancelled{false}, give_up{false};
  const Running running = start({.handle =
                                     [&](Request, Responder responder) {
                                       ++handled;
                                       while (!responder.cancelled() && !give_up) ::usleep(1000);
                                       cancelled = responder.cancelled();
                                     }},
                                short_options(1));
  ClientProcess process(server->endpoint(), client_options(), [](RequestClient& killed) {
    std::vector<PendingReply> pending;
    for (int i = 0; i < 3; ++i)
      pending.push_back(killed.start({.header = "long"}, {}, in_ten_seconds()));
    for (;;) ::pause();
  });
  EXPECT_TRUE(eventually([&] { return handled == 1; }));
  ::usleep(100'000);
  process.kill();
  const auto began = Deadline::Clock::now();
  EXPECT_TRUE(eventually([&] { return cancelled.load(); }));
  EXPECT_LT(Deadline::Clock::now() - began, Milliseconds(2000));
  give_up = true;
  EXPECT_EQ(handled, 1);
}

// The client's own limit is short, and the server reads nothing for longer.
TEST_P(RequestRule, ABusyServerIsNotLost) {
  const Running running = start({.handle =
                                     [](Request request, Responder responder) {
                                       if (request.head.header == "slow") ::usleep(2'500'000);
                                       echo(std::move(request), std::move(responder));
                                     }},
                                server_options(1));
  ChannelOptions impatient = client_options();
  impatient.silence = kSilence;
  const auto caller = connect(impatient);
  std::thread slow([&] {
    EXPECT_EQ(caller->call({.header = "slow"}, Places{}, in_ten_seconds()).header, "slow");
  });
  ::usleep(100'000);
  expect_echo(*caller, pattern(16 << 20, 1));
  slow.join();
}

// The memory of a request that has only partly come is released when its client is lost, also
// while a responder of this client is kept.
TEST_P(RequestRule, ALostClientReleasesThePlacementOfItsRequest) {
  const auto released = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> placed{false};
  Bytes store(64 << 20);
  std::mutex mutex;
  std::vector<Responder> kept;
  const Running running =
      start({.place = [&](const Head&) -> Placement {
               placed = true;
               return {.places = {store},
                       .owner = std::shared_ptr<void>(nullptr, [=](void*) { *released = true; })};
             },
             .handle =
                 [&](Request, Responder responder) {
                   std::lock_guard lock(mutex);
                   kept.push_back(std::move(responder));
                 }},
            short_options(1));
  ClientProcess process(server->endpoint(), client_options(), [&](RequestClient& killed) {
    const PendingReply keeps = killed.start({.header = "keep"}, {}, in_ten_seconds());
    killed.call({.tensors = {tensor_of(store)}}, Places{}, in_ten_seconds());
  });
  while (!placed) ::sched_yield();
  process.kill();
  EXPECT_TRUE(eventually([&] { return released->load(); }));
  EXPECT_TRUE(eventually([&] { return server->clients() == 1; }));
  EXPECT_EQ(kept.size(), 1u);
}

// The server's only thread finds new bytes of a busy client whenever it looks.
TEST_P(RequestRule, ABusyClientLeavesTurnsToOthers) {
  std::atomic<bool> stop{false};
  RequestServerOptions options = server_options(1);
  options.spin = std::chrono::milliseconds(10);
  const Running running = start({.handle = echo}, options);
  const auto busy = connect();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      while (!stop) busy->call({.header = "busy"}, Places{}, in_ten_seconds());
    });
  ::usleep(100'000);
  const auto began = Deadline::Clock::now();
  for (int i = 0; i < 10; ++i) expect_echo(*client, pattern(10, i));
  EXPECT_LT(Deadline::Clock::now() - began, Milliseconds(1000));
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_P(RequestRule, ALargeRequestCutByItsDeadlineEndsTheChannelWithTheReason) {
  Gate gate;
  const Running running = start(echo_but_block(gate), server_options(1));
  const auto other = connect();
  PendingReply blocking = other->start({.header = "block"}, {}, in_ten_seconds());
  ::usleep(20'000);
  const Bytes sent(80 << 20);
  message_of(ErrorCode::timeout, [&] {
    client->call({.tensors = {tensor_of(sent)}}, Places{}, Deadline::after(Milliseconds(100)),
                 "push");
  });
  EXPECT_THAT(message_of(ErrorCode::peer_lost,
                         [&] { client->call({.header = "x"}, Places{}, in_ten_seconds()); }),
              HasSubstr("in the middle of its bytes"));
  EXPECT_TRUE(client->is_lost());
  gate.open();
  blocking.wait(in_ten_seconds());
  EXPECT_FALSE(other->is_lost());
  EXPECT_THAT(message_of(ErrorCode::internal, [&] { blocking.wait(in_ten_seconds()); }),
              HasSubstr("twice"));
}

// The start of the memory that this process shares with itself as client and server.
uint64_t* numbers_of_the_rings() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:trireme") != std::string::npos)
      return reinterpret_cast<uint64_t*>(std::stoull(line, nullptr, 16));
  return nullptr;
}

TEST(RequestRings, WithImpossibleNumbersCloseTheChannelAndNotTheProcess) {
  testing::internal::CaptureStderr();
  std::mutex mutex;
  std::optional<Responder> kept;
  RequestServerOptions options;
  options.path = RequestPath::shm;
  RequestServer here({"127.0.0.1", 0}, kRequestToken,
                     {.handle =
                          [&](Request, Responder responder) {
                            std::lock_guard lock(mutex);
                            kept.emplace(std::move(responder));
                          }},
                     options);
  RequestClient caller(here.endpoint(), kRequestToken, in_ten_seconds());
  PendingReply pending = caller.start({.header = "x"}, {}, in_ten_seconds());
  ASSERT_TRUE(eventually([&] {
    std::lock_guard lock(mutex);
    return kept.has_value();
  }));
  uint64_t* const numbers = numbers_of_the_rings();
  ASSERT_NE(numbers, nullptr);
  constexpr size_t kTakenByTheClient = (sizeof(RingState) + offsetof(RingState, taken)) / 8;
  numbers[kTakenByTheClient] += uint64_t{1} << 40;
  {
    std::lock_guard lock(mutex);
    kept.reset();
  }
  EXPECT_TRUE(eventually([&] { return here.clients() == 0; }));
  message_of(ErrorCode::peer_lost, [&] { pending.wait(in_ten_seconds()); });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("impossible numbers"));
}

// The number that only the server writes is changed by its peer.
TEST(RequestRings, BelieveOnlyTheOtherSidesNumber) {
  alignas(64) RingState state{};
  Bytes memory(4096), data(100);
  Ring writer(state, memory.data(), memory.size(), RingBells());
  Ring reader(state, memory.data(), memory.size(), RingBells());
  iovec piece{data.data(), data.size()};
  EXPECT_EQ(writer.write({&piece, 1}), 100u);
  EXPECT_EQ(reader.read({&piece, 1}), 100u);
  state.taken += 7;
  EXPECT_FALSE(reader.has_data());
  state.taken -= 7;
  state.written += 4096;
  EXPECT_TRUE(writer.has_room());
}

// A server that opens its channel as it should, and then sends a frame of our choice.
std::string loss_after(FrameKind kind, uint64_t id) {
  asio::io_context context{1};
  std::unique_ptr<Channel> channel;
  ChannelOptions options;
  options.path = RequestPath::tcp;
  const auto expects = [](Purpose, const Subject&) { return true; };
  const auto open = [&](Doorkeeper::Guest guest) -> asio::awaitable<void> {
    channel = co_await open_as_server(guest, options, "");
    channel->writer.post(encode_front(kind, id, {}));
  };
  Doorkeeper door(context, {"127.0.0.1", 0},
                  {.terms = {.token = kRequestToken, .expects = expects}},
                  [&](Doorkeeper::Guest guest) {
                    asio::co_spawn(context, open(std::move(guest)), asio::detached);
                  });
  std::thread serves([&] { context.run(); });
  std::string reason;
  {
    RequestClient caller(door.endpoint(), kRequestToken, in_ten_seconds(), options);
    reason = message_of(ErrorCode::peer_lost,
                        [&] { caller.call({.header = "x"}, Places{}, in_ten_seconds()); });
  }
  context.stop();
  serves.join();
  return reason;
}

TEST(RequestFrames, ThatNoServerSendsEndTheChannel) {
  EXPECT_THAT(loss_after(FrameKind::request, 1), HasSubstr("from a server"));
  EXPECT_THAT(loss_after(FrameKind::cancel, 1), HasSubstr("from a server"));
  EXPECT_THAT(loss_after(FrameKind::alive, 1), HasSubstr("its kind does not have"));
}

TEST(RequestFrames, WithPartsThatTheirKindDoesNotHaveAreCorrupt) {
  for (const FramePrefix& prefix : {FramePrefix{.kind = FrameKind::request, .unused = 1},
                                    FramePrefix{.kind = FrameKind::reply, .code = 1},
                                    FramePrefix{.kind = FrameKind::cancel, .header_bytes = 1},
                                    FramePrefix{.kind = FrameKind::alive, .payload_bytes = 1},
                                    FramePrefix{.kind = FrameKind::failure, .tensors = 1}})
    EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { check_prefix(prefix, {}); }),
                HasSubstr("its kind does not have"));
}

}  // namespace
}  // namespace trireme::net::requests_rule_test
