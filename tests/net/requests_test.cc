// Requests and replies between a client and a server of one process, over both paths.
#include "requests.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <atomic>
#include <filesystem>
#include "../base/expect_error.h"

namespace trireme::net::requests_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Requests : public OnEachPath {};
INSTANTIATE_TEST_SUITE_P(Paths, Requests, testing::Values(RequestPath::tcp, RequestPath::shm),
                         path_name);

TEST_P(Requests, CarryTheirTensorsIntoMemoryThatTheReceiverNames) {
  Bytes store(5000), extra(3);
  std::atomic<bool> in_place{false};
  const Running running =
      start({.place = [&](const Head& head) -> Placement {
               EXPECT_EQ(head.header, "{\"op\": \"push\"}");
               return {.places = {store, extra}};
             },
             .handle =
                 [&](Request request, Responder responder) {
                   in_place = request.tensors[0].data() == store.data() &&
                              request.tensors[1].data() == extra.data();
                   EXPECT_THAT(request.client, HasSubstr(fmt::format("pid {}", ::getpid())));
                   EXPECT_EQ(request.head.tensors[0].name, "weight");
                   EXPECT_EQ(request.head.tensors[0].shape, (std::vector<int64_t>{5000}));
                   EXPECT_EQ(request.head.tensors[1].dtype, "uint8");
                   responder.reply({.header = "taken", .tensors = {tensor_of(store, "back")}});
                 }});
  const Bytes sent = pattern(5000, 1), more = pattern(3, 2);
  Bytes back(5000);
  const Reply reply = client->call(
      {.header = "{\"op\": \"push\"}", .tensors = {tensor_of(sent, "weight"), tensor_of(more)}},
      {back}, in_ten_seconds());
  EXPECT_TRUE(in_place);
  EXPECT_EQ(reply.header, "taken");
  EXPECT_EQ(reply.tensors[0].name, "back");
  EXPECT_TRUE(back == sent && store == sent && extra == more);
}

TEST_P(Requests, OfManySizesComeBackUnchanged) {
  const Running running = start({.handle = echo});
  for (const size_t bytes : {0, 1, 100, 4096, 8192, 70000, 1 << 20, 9 << 20})
    expect_echo(*client, pattern(bytes, static_cast<int>(bytes % 97)));
  const Reply bare = client->call({.header = "bare"}, Places{}, in_ten_seconds());
  EXPECT_EQ(bare.header, "bare");
}

TEST_P(Requests, OfManyThreadsShareOneClient) {
  const Running running = start({.handle = echo}, server_options(3));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 150; ++i)
        expect_echo(*client, pattern(static_cast<size_t>(i * 37 % 6000), 150 * thread + i));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Requests, ThatAreLargeGoBothWaysAtOnce) {
  RequestServerOptions options = server_options(2);
  options.ring_bytes = 64 << 10;
  const Running running = start({.handle = echo}, options);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 3; ++i) expect_echo(*client, pattern(6 << 20, 10 * thread + i));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Requests, AreAnsweredInAnyOrder) {
  Gate second_answered;
  const Running running = start({.handle = [&](Request request, Responder responder) {
    if (request.head.header == "first") second_answered.wait();
    responder.reply({.header = "to " + request.head.header});
  }});
  std::thread first([&] {
    EXPECT_EQ(client->call({.header = "first"}, Places{}, in_ten_seconds()).header, "to first");
  });
  EXPECT_EQ(client->call({.header = "second"}, Places{}, in_ten_seconds()).header, "to second");
  second_answered.open();
  first.join();
}

TEST_P(Requests, OfOneThreadMayBeStartedTogether) {
  const Running running = start({.handle = echo});
  const Bytes a = pattern(3000, 1), b = pattern(2 << 20, 2);
  Bytes to_a(a.size()), to_b(b.size());
  PendingReply first =
      client->start({.header = "a", .tensors = {tensor_of(a)}}, into({to_a}), in_ten_seconds());
  PendingReply second =
      client->start({.header = "b", .tensors = {tensor_of(b)}}, into({to_b}), in_ten_seconds());
  { const PendingReply dropped = client->start({.header = "c"}, {}, in_ten_seconds()); }
  EXPECT_EQ(second.wait(in_ten_seconds()).header, "b");
  EXPECT_EQ(first.wait(in_ten_seconds()).header, "a");
  EXPECT_TRUE(to_a == a && to_b == b);
  expect_echo(*client, a);
}

TEST_P(Requests, MayBeAnsweredLaterByAnotherThreadAndOutliveTheSilenceLimit) {
  std::mutex mutex;
  std::optional<Responder> kept;
  RequestServerOptions options = server_options(1);
  options.silence = Milliseconds(150);
  ChannelOptions of_client = client_options();
  of_client.silence = Milliseconds(150);
  const Running running = start({.handle =
                                     [&](Request request, Responder responder) {
                                       if (request.head.header != "later")
                                         return echo(std::move(request), std::move(responder));
                                       std::lock_guard lock(mutex);
                                       kept.emplace(std::move(responder));
                                     }},
                                options, of_client);
  std::thread later([&] {
    ::usleep(700'000);
    std::lock_guard lock(mutex);
    EXPECT_FALSE(kept->cancelled());
    EXPECT_TRUE(kept->reply({.header = "at last"}));
  });
  std::thread other([&] {
    for (int i = 0; i < 20; ++i) expect_echo(*client, pattern(100, i));  // The worker is free.
  });
  EXPECT_EQ(client->call({.header = "later"}, Places{}, Deadline::after(kLongestWait)).header,
            "at last");
  later.join();
  other.join();
}

TEST_P(Requests, WaitForBusyWorkersLongerThanTheSilenceLimit) {
  RequestServerOptions options = server_options(1);
  options.silence = Milliseconds(100);
  const Running running = start({.handle =
                                     [&](Request request, Responder responder) {
                                       if (request.head.header == "slow") ::usleep(500'000);
                                       echo(std::move(request), std::move(responder));
                                     }},
                                options);
  std::thread slow([&] {
    EXPECT_EQ(client->call({.header = "slow"}, Places{}, in_ten_seconds()).header, "slow");
  });
  expect_echo(*client, pattern(8 << 20, 3));
  slow.join();
  EXPECT_EQ(server->clients(), 1);
}

TEST_P(Requests, WhoseDeadlinePassesAreTimeoutsAndLateRepliesAreDropped) {
  Gate passed;
  std::atomic<bool> saw_cancelled{false}, answered{true};
  const Running running = start({.handle = [&](Request request, Responder responder) {
    if (request.head.header != "late") return echo(std::move(request), std::move(responder));
    EXPECT_TRUE(passed.wait());
    saw_cancelled = eventually([&] { return responder.cancelled(); });
    const Bytes late = pattern(1000, 5);
    answered = responder.reply({.header = "late", .tensors = {tensor_of(late)}});
  }});
  Bytes memory(1000, std::byte{7});
  EXPECT_THAT(message_of(ErrorCode::timeout,
                         [&] {
                           client->call({.header = "late"}, {memory},
                                        Deadline::after(Milliseconds(50)), "pull");
                         }),
              AllOf(HasSubstr("pull"), HasSubstr("50 ms"), HasSubstr("127.0.0.1")));
  passed.open();
  EXPECT_TRUE(eventually([&] { return !answered; }));
  EXPECT_TRUE(saw_cancelled);
  expect_echo(*client, pattern(1000, 6));
  EXPECT_TRUE(memory == Bytes(1000, std::byte{7}));
}

// The reply is on its way when the deadline passes: part of it lies in the caller's memory.
TEST_P(Requests, WhoseDeadlinePassesWithinTheReplyNoLongerWriteToItsMemory) {
  const Bytes large = pattern(24 << 20, 1);
  const Running running = start({.handle = [&](Request request, Responder responder) {
    if (request.head.header == "echo") return echo(std::move(request), std::move(responder));
    responder.reply({.header = "large", .tensors = {tensor_of(large)}});
  }});
  int cut = 0;
  for (int i = 0; i < 8; ++i) {
    Bytes memory(large.size());
    try {
      client->call({.header = "large"}, {memory}, Deadline::after(Milliseconds(1 + i)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout);
      ++cut;
    }
    std::fill(memory.begin(), memory.end(), std::byte{0xee});
    expect_echo(*client, pattern(10, i));
    EXPECT_TRUE(memory == Bytes(large.size(), std::byte{0xee}));
  }
  EXPECT_GT(cut, 0);
}

TEST_P(Requests, WhoseReplyNobodyWaitsForHoldNoThreadOfTheServer) {
  const Bytes large = pattern(64 << 20, 1);
  Gate gate;
  const Running running =
      start({.handle =
                 [&](Request request, Responder responder) {
                   if (request.head.header == "echo")
                     return echo(std::move(request), std::move(responder));
                   responder.reply({.header = "large", .tensors = {tensor_of(large)}});
                   gate.open();
                 }},
            server_options(1));
  {
    Bytes memory(large.size());
    const PendingReply dropped =
        client->start({.header = "large"}, into({memory}), in_ten_seconds());
    ::usleep(50'000);
  }
  EXPECT_TRUE(gate.wait());
  expect_echo(*connect(), pattern(100, 1));
}

TEST_P(Requests, ThatCannotBeSentInTimeLeaveTheChannelUsable) {
  Gate gate;
  const Running running = start(echo_but_block(gate), server_options(1));
  std::thread blocking([&] { client->call({.header = "block"}, Places{}, in_ten_seconds()); });
  ::usleep(20'000);
  {
    Bytes sent = pattern(40 << 20, 1), back(sent.size());
    EXPECT_THAT(message_of(ErrorCode::timeout,
                           [&] {
                             client->call({.header = "echo", .tensors = {tensor_of(sent)}}, {back},
                                          Deadline::after(Milliseconds(100)));
                           }),
                HasSubstr("to take it"));
  }
  gate.open();
  blocking.join();
  expect_echo(*client, pattern(5000, 2));
}

TEST_P(Requests, WithTensorsOfAnotherSizeAreErrorsOnEitherSide) {
  Bytes store(100);
  const Running running = start(
      {.place = [&](const Head&) -> Placement { return {.places = {store}}; }, .handle = echo});
  const Bytes right = pattern(100, 1), wrong = pattern(90000, 1);
  Bytes place(100), small(7);
  const auto send = [&](const Bytes& bytes, Places places) {
    client->call({.header = "push", .tensors = {tensor_of(bytes, "w")}}, places, in_ten_seconds());
  };
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { send(wrong, {place}); }),
              AllOf(HasSubstr("\"w\""), HasSubstr("90000"), HasSubstr("100")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { send(right, {small}); }),
              AllOf(HasSubstr("reply"), HasSubstr("has 100 bytes"), HasSubstr("of 7 bytes")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { send(right, {}); }),
              HasSubstr("memory for 0"));
  send(right, {place});
  EXPECT_TRUE(place == right);
}

TEST_P(Requests, OverTheLimitsOfTheOtherSideAreRefusedBeforeTheyAreSent) {
  RequestServerOptions narrow = server_options();
  narrow.limits = {.max_header_bytes = 200, .max_payload_bytes = 1000};
  const Running running = start({.handle = echo}, narrow);
  EXPECT_THAT(
      message_of(
          ErrorCode::invalid_argument,
          [&] { client->call({.header = std::string(300, 'x')}, Places{}, in_ten_seconds()); }),
      AllOf(HasSubstr("300 B"), HasSubstr("200 B")));
  const Bytes large(1001);
  EXPECT_THAT(
      message_of(
          ErrorCode::invalid_argument,
          [&] { client->call({.tensors = {tensor_of(large)}}, Places{}, in_ten_seconds()); }),
      HasSubstr("limit of 1.0 KB"));
  expect_echo(*client, pattern(1000, 1));
}

TEST_P(Requests, EndInTheErrorOfTheirHandler) {
  const Running running = start({.handle = [&](Request request, Responder responder) {
    if (request.head.header == "refuse")
      throw Error(ErrorCode::not_found, "serve", "no parameter \"x\"", "y or z");
    if (request.head.header == "throw") throw std::runtime_error("broken");
    if (request.head.header == "fail")
      responder.fail(ErrorCode::aborted, "the server ends", "later");
  }});
  const auto ask = [&](const char* header) {
    client->call({.header = header}, Places{}, in_ten_seconds());
  };
  EXPECT_THAT(
      message_of(ErrorCode::not_found, [&] { ask("refuse"); }),
      AllOf(HasSubstr("no parameter \"x\""), HasSubstr("try: y or z"), HasSubstr("127.0.0.1")));
  EXPECT_THAT(message_of(ErrorCode::internal, [&] { ask("throw"); }), HasSubstr("broken"));
  EXPECT_THAT(message_of(ErrorCode::aborted, [&] { ask("fail"); }), HasSubstr("the server ends"));
  EXPECT_THAT(message_of(ErrorCode::internal, [&] { ask("forget"); }),
              HasSubstr("without an answer"));
}

TEST_P(Requests, UnderWayEndWhenTheServerIsDestroyed) {
  std::mutex mutex;
  std::vector<Responder> kept;
  const Running running = start({.handle = [&](Request, Responder responder) {
    std::lock_guard lock(mutex);
    kept.push_back(std::move(responder));
  }});
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      message_of(ErrorCode::peer_lost,
                 [&] { client->call({.header = "wait"}, Places{}, in_ten_seconds()); });
    });
  EXPECT_TRUE(eventually([&] {
    std::lock_guard lock(mutex);
    return kept.size() == 3;
  }));
  server.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(kept[0].cancelled());
  EXPECT_FALSE(kept[0].reply({.header = "too late"}));
  EXPECT_THAT(message_of(ErrorCode::peer_lost,
                         [&] { client->call({.header = "x"}, Places{}, in_ten_seconds()); }),
              HasSubstr("127.0.0.1"));
}

TEST(RequestExample, OfTheDocumentsWorks) {
  const std::string token = kRequestToken;
  RequestServer server({"127.0.0.1", 0}, token,
                       {.handle = [](Request request, Responder responder) {
                         responder.reply({.header = "to " + request.head.header});
                       }});
  RequestClient client(server.endpoint(), token, Deadline::after(Milliseconds(10000)));
  const Reply reply =
      client.call({.header = "pull"}, Places{}, Deadline::after(Milliseconds(60000)), "pull");
  EXPECT_EQ(reply.header, "to pull");
}

size_t entries_of(const char* folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

TEST_P(Requests, LeaveNoThreadAndNoDescriptorBehind) {
  const size_t threads = entries_of("/proc/self/task"), files = entries_of("/proc/self/fd");
  for (int i = 0; i < 3; ++i) {
    const Running running = start({.handle = echo});
    const auto other = connect();
    expect_echo(*client, pattern(5000, i));
    expect_echo(*other, pattern(5000, i));
    if (i == 1) server.reset();
    client.reset();
  }
  server.reset();
  EXPECT_TRUE(eventually([&] { return entries_of("/proc/self/task") == threads; }));
  EXPECT_EQ(entries_of("/proc/self/fd"), files);
}

}  // namespace
}  // namespace trireme::net::requests_test
