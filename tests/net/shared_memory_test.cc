// Tests of shared memory, its descriptor and its barrier, between real processes and between
// threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/net/descriptor_socket.h>
#include <trireme/net/shared_barrier.h>
#include <trireme/net/shared_memory.h>
#include <unistd.h>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include "../base/expect_error.h"

namespace trireme::net::shared_memory_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Milliseconds kTimeout{10000};

// Runs `body` in a process of its own. succeeded() is true if `body` returned true.
class Child {
 public:
  explicit Child(const std::function<bool()>& body) : pid_(fork()) {
    if (pid_ == 0) {
      bool good = false;
      try {
        good = body();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "child: %s\n", error.what());
      }
      _exit(good ? 0 : 1);
    }
  }
  bool succeeded() {
    int status = 0;
    return waitpid(pid_, &status, 0) == pid_ && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t pid_;
};

TEST(SharedMemory, IsSeenByAProcessThatReceivedItsDescriptor) {
  DescriptorListener listener;
  Child child([&] {
    DescriptorSocket socket =
        DescriptorSocket::connect(listener.name(), Deadline::after(kTimeout));
    SharedMemory memory =
        SharedMemory::open(socket.receive_descriptor(Deadline::after(kTimeout)), "a test");
    const bool good =
        std::strcmp(reinterpret_cast<char*>(memory.data()), "from the parent") == 0 &&
        memory.bytes() == 1 << 20;
    std::strcpy(reinterpret_cast<char*>(memory.data()), "from the child");
    socket.send_number(1, Deadline::after(kTimeout));
    return good;
  });
  SharedMemory memory = SharedMemory::create(1 << 20, Sharing::processes, "a test");
  memory.reserve(0, memory.bytes());
  memory.prefault(0, memory.bytes());
  std::strcpy(reinterpret_cast<char*>(memory.data()), "from the parent");
  DescriptorSocket socket = listener.accept(Deadline::after(kTimeout));
  socket.send_descriptor(memory.descriptor(), Deadline::after(kTimeout));
  EXPECT_EQ(socket.receive_number(Deadline::after(kTimeout)), 1);
  EXPECT_STREQ(reinterpret_cast<char*>(memory.data()), "from the child");
  EXPECT_TRUE(child.succeeded());
}

TEST(SharedMemory, IsZeroAtFirst) {
  for (const Sharing sharing : {Sharing::threads, Sharing::processes}) {
    SharedMemory memory = SharedMemory::create(3 << 20, sharing, "a test");
    memory.reserve(0, memory.bytes());
    EXPECT_TRUE(std::all_of(memory.data(), memory.data() + memory.bytes(),
                            [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(SharedMemory, MoreThanIsAvailableIsRefusedWithSizesAndRemedyBeforeItIsTouched) {
  const size_t bytes = static_cast<size_t>(available_memory_bytes()) + (size_t{1} << 30);
  for (const Sharing sharing : {Sharing::threads, Sharing::processes}) {
    SharedMemory memory = SharedMemory::create(bytes, sharing, "parameters");
    EXPECT_THAT(
        message_of(ErrorCode::io, [&] { memory.reserve(0, bytes); }),
        AllOf(HasSubstr("parameters"), HasSubstr("available"), HasSubstr("share_parameters")));
  }
}

TEST(SharedMemory, TooLittleSpaceIsToldInTheWordsOfTheCaller) {
  Descriptor file(::memfd_create("a test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  SharedMemory memory = SharedMemory::open(
      std::move(file), {"a cache", "a smaller cache", "data.cache_dir"}, "/the/disk");
  constexpr size_t kMoreThanAnyDisk = size_t{1} << 62;
  EXPECT_THAT(
      message_of(ErrorCode::io, [&] { memory.reserve(kMoreThanAnyDisk, kMoreThanAnyDisk); }),
      AllOf(HasSubstr("no file for a cache in data.cache_dir /the/disk"),
            HasSubstr("try: a smaller cache"), Not(HasSubstr("memory."))));
  const size_t bytes = static_cast<size_t>(available_memory_bytes()) + (size_t{1} << 30);
  SharedMemory other =
      SharedMemory::create(bytes, Sharing::threads, {"a cache", "a smaller cache"});
  EXPECT_THAT(message_of(ErrorCode::io, [&] { other.reserve(0, bytes); }),
              AllOf(HasSubstr("try: a smaller cache"), Not(HasSubstr("share_parameters"))));
}

TEST(SharedMemory, ALimitOnFilesCausesAnErrorInsteadOfASignal) {
  Child child([] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      SharedMemory::create(8 << 20, Sharing::processes, "parameters").reserve(0, 8 << 20);
    } catch (const Error& error) {
      return error.code() == ErrorCode::io;
    }
    return false;
  });
  EXPECT_TRUE(child.succeeded());
}

TEST(DescriptorSocket, ConnectingToANameWithoutAListenerIsAnError) {
  message_of(ErrorCode::peer_lost, [] {
    DescriptorSocket::connect("trireme-nobody", Deadline::after(Milliseconds(200)));
  });
}

TEST(DescriptorSocket, APeerThatEndsIsLost) {
  DescriptorListener listener;
  Child child([&] {
    DescriptorSocket::connect(listener.name(), Deadline::after(kTimeout));
    return true;
  });
  DescriptorSocket socket = listener.accept(Deadline::after(kTimeout));
  EXPECT_TRUE(child.succeeded());
  message_of(ErrorCode::peer_lost, [&] { socket.receive_number(Deadline::after(kTimeout)); });
}

// A process of this user that has found the socket's address, which is not secret.
Descriptor intruder_at(const std::string& name) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string found = name.substr(0, name.find('/'));
  std::memcpy(address.sun_path + 1, found.data(), found.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + found.size());
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  return socket;
}

TEST(DescriptorSocket, OnlyAProcessThatWasToldTheNameIsAccepted) {
  auto here = std::make_unique<DescriptorListener>();
  DescriptorListener& listener = *here;
  const std::string address = listener.name().substr(0, listener.name().find('/'));
  const Descriptor silent = intruder_at(listener.name()), loud = intruder_at(listener.name()),
                   long_winded = intruder_at(listener.name());
  { intruder_at(listener.name()); }  // It disconnects at once.
  const std::string proof(32, 'x'), flood(60000, 'x');
  EXPECT_EQ(::send(loud.get(), proof.data(), proof.size(), 0), 32);
  EXPECT_GT(::send(long_winded.get(), flood.data(), flood.size(), 0), 0);
  // A process that knows the address but not the secret proves nothing here.
  Child guessing([&] {
    try {
      DescriptorSocket::connect(address + "/guess", Deadline::after(kTimeout))
          .receive_number(Deadline::after(kTimeout));
    } catch (const Error& error) {
      return error.code() != ErrorCode::timeout;
    }
    return false;
  });
  Child child([&] {
    DescriptorSocket::connect(listener.name(), Deadline::after(kTimeout))
        .send_number(7, Deadline::after(kTimeout));
    return true;
  });
  DescriptorSocket partner = listener.accept(Deadline::after(kTimeout));
  EXPECT_EQ(partner.receive_number(Deadline::after(kTimeout)), 7);
  EXPECT_TRUE(child.succeeded());
  message_of(ErrorCode::timeout, [&] { listener.accept(Deadline::after(Milliseconds(50))); });
  here.reset();
  EXPECT_TRUE(guessing.succeeded());
}

TEST(DescriptorSocket, AcceptWithoutAPartnerIsATimeout) {
  DescriptorListener listener;
  message_of(ErrorCode::timeout, [&] { listener.accept(Deadline::after(Milliseconds(50))); });
}

struct InMemory {
  explicit InMemory(Sharing sharing = Sharing::threads)
      : memory(SharedMemory::create(sizeof(SharedBarrier) + 4096, sharing, "a barrier")) {
    memory.reserve(0, memory.bytes());
  }
  SharedBarrier& barrier() { return *reinterpret_cast<SharedBarrier*>(memory.data()); }
  int64_t* numbers() { return reinterpret_cast<int64_t*>(memory.data() + sizeof(SharedBarrier)); }
  SharedMemory memory;
};

// Every rank writes its number, and each adds all numbers up. The sum is wrong as soon as one rank
// runs ahead.
bool adds_up(InMemory& shared, int rank, int size, int rounds) {
  BarrierView barrier(shared.barrier(), rank, size, {kTimeout, {}});
  bool good = true;
  for (int round = 0; round < rounds; ++round) {
    shared.numbers()[rank] = round * 100 + rank;
    barrier.arrive_and_wait("written");
    int64_t sum = 0;
    for (int other = 0; other < size; ++other) sum += shared.numbers()[other];
    good = good && sum == static_cast<int64_t>(size) * round * 100 + size * (size - 1) / 2;
    barrier.arrive_and_wait("read");
  }
  return good;
}

TEST(SharedBarrier, HoldsThreadsTogether) {
  for (const int size : {1, 2, 3, 8}) {
    InMemory shared;
    std::atomic<int> good{0};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] { good += adds_up(shared, rank, size, 500); });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(good, size);
  }
}

TEST(SharedBarrier, HoldsProcessesTogether) {
  InMemory shared(Sharing::processes);
  std::vector<std::unique_ptr<Child>> children;
  for (int rank = 1; rank < 4; ++rank)
    children.push_back(
        std::make_unique<Child>([&, rank] { return adds_up(shared, rank, 4, 500); }));
  EXPECT_TRUE(adds_up(shared, 0, 4, 500));
  for (auto& child : children) EXPECT_TRUE(child->succeeded());
}

TEST(SharedBarrier, ATimeoutNamesTheMissingRanksAndEndsItForAll) {
  InMemory shared;
  BarrierView first(shared.barrier(), 0, 3, {Milliseconds(100), {}}),
      late(shared.barrier(), 2, 3, {kTimeout, {}});
  EXPECT_THAT(message_of(ErrorCode::timeout, [&] { first.arrive_and_wait("step 7"); }),
              AllOf(HasSubstr("step 7"), HasSubstr("rank 1, 2")));
  EXPECT_THAT(message_of(ErrorCode::timeout, [&] { late.arrive_and_wait("step 7"); }),
              HasSubstr("rank 1, 2"));
}

TEST(SharedBarrier, ALostWorkerIsReportedUnderTheRankOfTheReader) {
  InMemory shared;
  const auto throw_lost = [] {
    throw Error(ErrorCode::peer_lost, "launch", "worker 2 was lost", "run again");
  };
  BarrierView finder(shared.barrier(), 1, 3, {kTimeout, throw_lost}),
      reader(shared.barrier(), 0, 3, {kTimeout, {}});
  std::thread([&] {
    set_thread_rank(1, 3);
    message_of(ErrorCode::peer_lost, [&] { finder.arrive_and_wait("step"); });
    set_thread_rank(0, 3);
    EXPECT_EQ(message_of(ErrorCode::peer_lost, [&] { reader.arrive_and_wait("step"); }),
              "[comm] rank 0/3: worker 2 was lost; try: run again");
  }).join();
}

TEST(SharedBarrier, AnEndingWakesTheWaitingRank) {
  InMemory shared;
  BarrierView waiting(shared.barrier(), 0, 2, {kTimeout, {}}),
      ending(shared.barrier(), 1, 2, {kTimeout, {}});
  std::thread other([&] { ending.end(ErrorCode::aborted, "out of data"); });
  EXPECT_THAT(message_of(ErrorCode::aborted, [&] { waiting.arrive_and_wait("step"); }),
              HasSubstr("out of data"));
  other.join();
  EXPECT_THAT(message_of(ErrorCode::aborted, [&] { ending.arrive_and_wait("step"); }),
              HasSubstr("out of data"));
}

TEST(SharedBarrier, AKilledProcessEndsTheWaitOnceItIsKnownToBeLost) {
  InMemory shared(Sharing::processes);
  Child child([] {
    raise(SIGKILL);
    return true;
  });
  std::atomic<bool> known{false};
  std::thread watcher([&] {
    child.succeeded();
    known = true;
  });
  BarrierView barrier(shared.barrier(), 0, 2, {kTimeout, [&] {
                                                 if (known)
                                                   throw Error(ErrorCode::peer_lost, "launch",
                                                               "worker 1 was killed");
                                               }});
  EXPECT_THAT(message_of(ErrorCode::peer_lost, [&] { barrier.arrive_and_wait("step"); }),
              HasSubstr("worker 1"));
  watcher.join();
}

}  // namespace
}  // namespace trireme::net::shared_memory_test
