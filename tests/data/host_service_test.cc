#include <ATen/core/Tensor.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <trireme/base/descriptor.h>
#include <trireme/data/service/host_server.h>
#include <trireme/data/service/host_socket.h>
#include <unistd.h>
#include <latch>

#include "../base/expect_error.h"
#include "service.h"

namespace trireme::data {
namespace host_service_tests {

using testing::HasSubstr;

// The server of a host in a thread of this process.
class HostInThread {
 public:
  explicit HostInThread(std::string problem = "", Milliseconds patience = Milliseconds(60'000))
      : problem_(std::move(problem)) {
    set_service_hooks({.token = {},
                       .start_host = [this](int listener) { start(listener); },
                       .host_patience = patience});
  }
  void start(int listener) {
    ++started;
    threads_.emplace_back([this, socket = ::dup(listener)] {
      run_host_server(
          Descriptor(socket),
          [this](SampleServerOptions& options) {
            options.threads = 2;
            open();
            if (!problem_.empty()) throw std::runtime_error(problem_);
            return std::vector<ServedPart>{{facts_for(kStages, 40), made_images(kStages, 40)}};
          },
          [this] { return stops.load(); }, Milliseconds(50));
      ++ended;
    });
  }
  std::atomic<int> started{0}, ended{0};
  std::atomic<bool> stops{false};
  std::function<void()> open = [] {};  // Ends when the data is open.

 private:
  const std::string problem_;
  std::vector<std::jthread> threads_;
};

TEST(HostService, ProcessesOfAHostHaveOneServerThatEndsWithThem) {
  HostInThread host;
  DataOptions options;
  options.service = "host";
  std::atomic<int> served_samples{0};
  {
    std::latch all_asked(4);
    std::vector<std::jthread> workers;
    for (int worker = 0; worker < 4; ++worker)
      workers.emplace_back([&] {
        const auto source = served(options, kStages, made_images(kStages, 40));
        expect_same_batches(*source, *made_images(kStages, 40));
        served_samples += static_cast<int>(source->served()->served);
        all_asked.arrive_and_wait();
      });
  }
  EXPECT_EQ(served_samples, 4 * 24);
  EXPECT_EQ(host.started, 1);
  wait_for([&] { return host.ended == 1; });
  // The name is free again.
  const auto source = served(options, kStages, made_images(kStages, 40));
  expect_same_batches(*source, *made_images(kStages, 40), 1);
  EXPECT_EQ(host.started, 2);
}

TEST(HostService, AServerThatEndsIsReplaced) {
  HostInThread host;
  DataOptions options;
  options.service = "host";
  const auto source = served(options, kStages, made_images(kStages, 40));
  host.stops = true;
  wait_for([&] { return host.ended == 1; });
  expect_same_batches(*source, *made_images(kStages, 40));
  host.stops = false;
  const int64_t before = source->served()->served;
  wait_for([&] {
    source->get_batch({1});
    return source->served()->served > before;
  });
  EXPECT_GE(host.started, 2);
}

TEST(HostService, TheReasonWhyItCannotMakeSamplesReachesTheWorker) {
  HostInThread host("no function \"brighter\" is registered");
  DataOptions options;
  options.service = "host";
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { served(options, kStages, made_images(kStages, 40)); }),
              HasSubstr("no function \"brighter\" is registered"));
}

TEST(HostService, ANameIsFreedWithItsSocket) {
  const std::string name = host_service_name("0123456789") + std::to_string(::getpid());
  auto first = claim_host_name(name);
  ASSERT_TRUE(first);
  EXPECT_FALSE(claim_host_name(name));
  auto line = call_host_name(name);
  ASSERT_TRUE(line);
  first.reset();
  EXPECT_FALSE(receive_greeting(line->get(), Deadline::after(Milliseconds(10'000))));
  EXPECT_FALSE(call_host_name(name));
  EXPECT_TRUE(claim_host_name(name));
}

TEST(HostService, AWorkerWaitsWhileTheServerSaysThatItOpensTheData) {
  constexpr Milliseconds kPatience{3000};
  HostInThread host("", kPatience);
  host.open = [&] { std::this_thread::sleep_for(kPatience + Milliseconds(1500)); };
  DataOptions options;
  options.service = "host";
  options.service_timeout = kPatience;
  const auto source = served(options, kStages, made_images(kStages, 40));
  expect_same_batches(*source, *made_images(kStages, 40));
  EXPECT_EQ(source->served()->made_here, 0);
  EXPECT_EQ(host.started, 1);
}

TEST(HostService, AServerThatDiesWhileItOpensTheDataIsReplaced) {
  HostInThread host;
  int calls = 0;
  set_service_hooks({.token = {}, .start_host = [&](int listener) {
                       if (calls++ > 0) return host.start(listener);
                       // This one takes the connection, says that it opens, and is gone.
                       const auto client = accept_client(listener);
                       send_greeting(client->get(), {.is_opening = true});
                     }});
  DataOptions options;
  options.service = "host";
  const auto source = served(options, kStages, made_images(kStages, 40));
  expect_same_batches(*source, *made_images(kStages, 40), 2);
  EXPECT_EQ(source->served()->made_here, 0);
  EXPECT_EQ(host.started, 1);
}

// A server that a test calls by itself.
class CalledHost {
 public:
  CalledHost() : name_(host_service_name("of a test") + std::to_string(::getpid())) {
    auto listener = claim_host_name(name_);
    thread_ = std::jthread([this, socket = std::move(*listener)]() mutable {
      run_host_server(
          std::move(socket),
          [this](SampleServerOptions&) {
            wait_for([this] { return is_open.load(); });
            return std::vector<ServedPart>{{facts_for("", 4), made_images("", 4)}};
          },
          [this] { return ++turns, stops.load(); }, Milliseconds(100));
      has_ended = true;
    });
  }
  ~CalledHost() { stops = is_open = true; }
  Descriptor call() const { return std::move(*call_host_name(name_)); }

  std::atomic<bool> is_open{false}, stops{false}, has_ended{false};
  std::atomic<int> turns{0};

 private:
  const std::string name_;
  std::jthread thread_;
};

// The next message of a server that is not a sign that it opens.
std::optional<HostGreeting> last_greeting(const Descriptor& line) {
  for (;;) {
    auto greeting = receive_greeting(line.get(), Deadline::after(Milliseconds(60'000)));
    if (!greeting || !greeting->is_opening) return greeting;
  }
}

TEST(HostService, ClientsThatGaveUpAreNotCounted) {
  CalledHost host;
  {
    const Descriptor one = host.call(), other = host.call();
    for (const Descriptor* const line : {&one, &other}) {
      const auto sign = receive_greeting(line->get(), Deadline::after(Milliseconds(60'000)));
      ASSERT_TRUE(sign);
      EXPECT_TRUE(sign->is_opening);
    }
  }
  host.call();
  host.is_open = true;
  // With clients it would end 100 ms after the last one is gone.
  wait_for([&] { return host.turns > 4; });
  EXPECT_FALSE(host.has_ended);
  {
    const Descriptor late = host.call();
    const auto greeting = last_greeting(late);
    ASSERT_TRUE(greeting);
    EXPECT_GT(greeting->at.port, 0);
  }
  wait_for([&] { return host.has_ended.load(); });
}

// Lets this process open no further file.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = std::min<rlim_t>(before_.rlim_cur, 512);
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (;;) {
      Descriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!file) break;
      files_.push_back(std::move(file));
    }
  }
  ~NoMoreFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  void free_one() { files_.pop_back(); }

 private:
  rlimit before_{};
  std::vector<Descriptor> files_;
};

TEST(HostService, AServerWithTooManyFilesOpenWaitsAndSaysItOnce) {
  CalledHost host;
  const Descriptor first = host.call();
  host.is_open = true;
  ASSERT_TRUE(last_greeting(first));
  testing::internal::CaptureStderr();
  Descriptor second;
  {
    NoMoreFiles none;
    none.free_one();
    second = host.call();
    const int before = host.turns;
    std::this_thread::sleep_for(Milliseconds(1500));
    // A turn waits 200 ms for clients.
    EXPECT_LT(host.turns - before, 50);
  }
  ASSERT_TRUE(last_greeting(second));
  const std::string said = testing::internal::GetCapturedStderr();
  const size_t told = said.find("Too many open files");
  ASSERT_NE(told, std::string::npos) << said;
  EXPECT_EQ(said.find("Too many open files", told + 1), std::string::npos) << said;
}

}  // namespace host_service_tests
}  // namespace trireme::data
