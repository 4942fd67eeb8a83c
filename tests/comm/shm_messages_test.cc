// Messages in the shared memory of a host: read in the sender's memory, or through the ring.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <trireme/comm/host/peer_memory.h>
#include <trireme/comm/host/shm_group.h>
#include <unistd.h>
#include <array>
#include "ranks.h"

namespace trireme::shm_messages_test {
namespace {

using tests::Groups;

Groups two_ranks(Milliseconds timeout) {
  comm::ShmGroupOptions options;
  options.timeout = timeout;
  return comm::make_shm_groups(comm::make_thread_teams(2, timeout), options);
}

at::Tensor values(int64_t count, int start) { return at::arange(start, start + count, at::kInt); }

class ShmMessages : public ::testing::TestWithParam<bool> {
 protected:
  static Groups groups_of(int ranks) {
    comm::ShmGroupOptions options;
    options.timeout = Milliseconds(20000);
    options.reads_peers = GetParam();
    return comm::make_shm_groups(comm::make_thread_teams(ranks, options.timeout), options);
  }
};

TEST_P(ShmMessages, OfAnySizeArriveInOrder) {
  const Groups groups = groups_of(3);
  tests::on_ranks(groups, [](Group& group) {
    const int next = (group.rank() + 1) % 3, previous = (group.rank() + 2) % 3;
    std::vector<WorkPtr> works;
    std::vector<at::Tensor> sent, received;
    int number = 0;
    for (const int64_t count : {0, 1, 4095, 4096, 4097, 8180, 8192, 9000, 100000, 1000003}) {
      for (int repeat = 0; repeat < 3; ++repeat, ++number) {
        sent.push_back(values(count, group.rank() + number));
        received.push_back(at::zeros({count}, at::kInt));
        if (number % 2 == 0) works.push_back(group.recv_async(received.back(), previous));
        works.push_back(group.send_async(sent.back(), next));
        if (number % 2 != 0) works.push_back(group.recv_async(received.back(), previous));
      }
    }
    for (const WorkPtr& work : works) work->wait();
    for (int i = 0; i < number; ++i)
      EXPECT_TRUE(received[static_cast<size_t>(i)].equal(
          values(received[static_cast<size_t>(i)].numel(), previous + i)))
          << i;
  });
}

TEST_P(ShmMessages, MoreThanThereAreSlotsArrive) {
  const Groups groups = groups_of(2);
  tests::on_ranks(groups, [](Group& group) {
    std::vector<WorkPtr> works;
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 200; ++i) {
      tensors.push_back(group.rank() == 0 ? values(5000, i) : at::zeros({5000}, at::kInt));
      works.push_back(group.rank() == 0 ? group.send_async(tensors.back(), 1, i % 4)
                                        : group.recv_async(tensors.back(), 0, i % 4));
    }
    for (const WorkPtr& work : works) work->wait();
    for (int i = 0; i < 200; ++i)
      EXPECT_TRUE(tensors[static_cast<size_t>(i)].equal(values(5000, i))) << i;
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, ShmMessages, ::testing::Bool(), [](const auto& each) {
  return each.param ? "ReadByTheReceiver" : "ThroughTheRing";
});

// One thread plays both ranks: the sender makes no call while the receiver waits.
TEST(ShmMessage, ALargeOneNeedsNoHelpOfItsSender) {
  const Groups groups = comm::make_shm_groups(comm::make_thread_teams(2, Milliseconds(5000)), {});
  const at::Tensor sent = values(1000003, 5), received = at::zeros_like(sent);
  const WorkPtr sending = groups[0]->send_async(sent, 1);
  EXPECT_FALSE(sending->is_done());
  groups[1]->recv(received, 0);
  EXPECT_TRUE(received.equal(sent));
  EXPECT_TRUE(sending->is_done());
}

TEST(ShmMessage, ItsTensorLivesUntilItIsReadIfNobodyAwaitsIt) {
  const Groups groups = comm::make_shm_groups(comm::make_thread_teams(2, Milliseconds(5000)), {});
  for (int i = 0; i < 3; ++i) (void)groups[0]->send_async(values(100000, i), 1);
  for (int i = 0; i < 3; ++i) {
    const at::Tensor received = at::zeros({100000}, at::kInt);
    groups[1]->recv(received, 0);
    EXPECT_TRUE(received.equal(values(100000, i)));
  }
}

TEST(PeerMemory, IsReadOnlyIfTheNumberIsThere) {
  const uint64_t number = comm::number_for_probes();
  comm::MemoryProbe probe = comm::probe_of_this_process(number);
  EXPECT_TRUE(comm::can_read(probe));
  ++probe.number;
  EXPECT_FALSE(comm::can_read(probe));
  probe.address = 8;
  EXPECT_FALSE(comm::can_read(probe));
  EXPECT_FALSE(comm::read_memory(comm::probe_of_this_process(number), 8, &probe, 1));
  uint64_t copy = 0;
  EXPECT_FALSE(comm::read_memory(probe, reinterpret_cast<uint64_t>(&number), &copy, sizeof copy));
  EXPECT_EQ(copy, 0U);
}

TEST(ShmMessage, TwoRanksMayFirstSendToEachOther) {
  const Groups groups = two_ranks(Milliseconds(5000));
  tests::on_ranks(groups, [](Group& group) {
    const at::Tensor received = at::zeros({100000}, at::kInt);
    group.send(values(100000, group.rank()), 1 - group.rank());
    group.recv(received, 1 - group.rank());
    EXPECT_TRUE(received.equal(values(100000, 1 - group.rank())));
  });
}

TEST(ShmMessage, IsNotReadAfterItsSenderGaveUp) {
  const Groups groups = two_ranks(Milliseconds(50));
  const at::Tensor sent = values(100000, 1), received = at::zeros_like(sent);
  EXPECT_THROW(groups[0]->send(sent, 1), Error);
  EXPECT_THROW(groups[1]->recv(received, 0), Error);
}

TEST(ShmMessage, IsNotReadAfterTheEndOfItsGroup) {
  Groups groups = two_ranks(Milliseconds(5000));
  (void)groups[0]->send_async(values(100000, 1), 1);
  groups[0].reset();
  EXPECT_THROW(groups[1]->recv(at::zeros({100000}, at::kInt), 0), Error);
}

TEST(ShmMessage, APatientReceiverStillHasATimeOut) {
  const Groups groups = two_ranks(Milliseconds(50));
  const WorkPtr work = groups[1]->recv_async(at::zeros({10}, at::kInt), 0);
  const auto poll = [&] {
    for (const Deadline late = Deadline::after(Milliseconds(20000)); !late.expired();)
      (void)work->wait_for(Milliseconds(5));
  };
  EXPECT_THROW(poll(), Error);
}

// Two processes. Where the system forbids them to read each other, the ring carries the messages.
TEST(ShmMessage, CrossesBetweenProcesses) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const auto run = [&](int process) {
    comm::HostMeeting meeting;
    meeting.process = process;
    meeting.processes = 2;
    meeting.timeout = Milliseconds(20000);
    meeting.publish = [&](const std::string& name) {
      (void)!::write(ends[1], name.c_str(), name.size());
    };
    meeting.look_up = [&](Deadline) {
      std::array<char, 256> name{};
      const ssize_t bytes = ::read(ends[0], name.data(), name.size());
      return std::string(name.data(), static_cast<size_t>(std::max<ssize_t>(0, bytes)));
    };
    comm::ShmGroupOptions options;
    options.timeout = meeting.timeout;
    const auto group = comm::make_shm_groups(comm::join_host_teams(meeting, 1), options).front();
    bool right = true;
    for (const int64_t count : {10, 5000, 3000000}) {
      const at::Tensor received = at::zeros({count}, at::kInt), sent = values(count, process);
      const WorkPtr receiving = group->recv_async(received, 1 - process),
                    sending = group->send_async(sent, 1 - process);
      receiving->wait();
      sending->wait();
      right = right && received.equal(values(count, 1 - process));
    }
    group->barrier();
    return right;
  };
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(1);  // The threads of OpenMP do not survive the fork.
    ::_exit(run(1) ? 0 : 1);
  }
  EXPECT_TRUE(run(0));
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (const int end : ends) ::close(end);
}

}  // namespace
}  // namespace trireme::shm_messages_test
