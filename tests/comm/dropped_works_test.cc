// The group finishes an operation that was started, also if its Work is dropped.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>
#include "ranks.h"

namespace trireme::dropped_works_test {
namespace {

struct Site {
  std::string name;
  int workers = 1, replicas = 1;
  std::string backend = "auto";
};

class DroppedWork : public ::testing::TestWithParam<Site> {
 protected:
  tests::Groups groups(Milliseconds timeout = Milliseconds(20000)) {
    WorldOptions options = tests::world_options(timeout);
    options.backend = GetParam().backend;
    workers_.emplace(GetParam().workers, options);
    return workers_->make_groups(GetParam().replicas);
  }
  void TearDown() override {
    if (workers_) workers_->leave();
  }
  std::optional<tests::Workers> workers_;
};

at::Tensor numbers_from(int start, int64_t count) {
  return at::arange(start, start + count, at::kInt);
}

void await_equal(const at::Tensor& tensor, const at::Tensor& expected) {
  const Deadline deadline = Deadline::after(Milliseconds(10000));
  while (!tensor.equal(expected)) {
    ASSERT_FALSE(deadline.expired()) << "the message has not come";
    std::this_thread::sleep_for(Milliseconds(1));
  }
}

TEST_P(DroppedWork, AReceiveStillTakesItsMessage) {
  tests::on_ranks(groups(), [](Group& group) {
    const int last = group.size() - 1;
    for (const int64_t count : {3, 300000}) {
      const at::Tensor first = at::zeros({count}, at::kInt), second = at::zeros_like(first);
      if (group.rank() == last) {
        EXPECT_FALSE(group.recv_async(first, 0, 1)->wait_for(Milliseconds(20)));
      }
      group.barrier();
      if (group.rank() == 0) {
        group.send(numbers_from(1, count), last, 1);
        group.send(numbers_from(2, count), last, 1);
      }
      if (group.rank() == last) {
        group.recv(second, 0, 1);
        EXPECT_TRUE(second.equal(numbers_from(2, count)));
        await_equal(first, numbers_from(1, count));
      }
    }
    group.barrier();
  });
}

TEST_P(DroppedWork, ASendStillArrives) {
  tests::on_ranks(groups(), [](Group& group) {
    const int last = group.size() - 1;
    for (const int64_t count : {3, 300000}) {
      if (group.rank() == 0) (void)group.send_async(numbers_from(1, count), last, 1);
      if (group.rank() == last) {
        const at::Tensor received = at::zeros({count}, at::kInt);
        group.recv(received, 0, 1);
        EXPECT_TRUE(received.equal(numbers_from(1, count)));
      }
      group.barrier();
    }
  });
}

// Nobody waits for it, so nothing times out. The group can be given up while it waits.
TEST_P(DroppedWork, AReceiveWithoutAMessageDoesNotDisturbTheGroup) {
  constexpr Milliseconds kTimeout{1000};
  auto ranks = groups(kTimeout);
  const at::Tensor tensor = at::zeros({3});
  EXPECT_FALSE(ranks.back()->recv_async(tensor, 0, 1)->wait_for(Milliseconds(20)));
  std::this_thread::sleep_for(kTimeout + kTimeout / 2);
  tests::on_ranks(ranks, [](Group& group) {
    const at::Tensor sum = at::ones({10});
    group.all_reduce(sum);
    EXPECT_TRUE(sum.equal(at::full({10}, static_cast<double>(group.size()))));
  });
  const Deadline deadline = Deadline::after(Milliseconds(5000));
  ranks.clear();
  EXPECT_FALSE(deadline.expired());
}

std::vector<Site> sites() {
  return {{"threads", 1, 2},
          {"shm", 2, 1},
          {"tcp", 2, 1, "tcp"},
          {"gloo", 2, 1, "gloo"},
          {"gloo_and_threads", 2, 2, "gloo"}};
}
INSTANTIATE_TEST_SUITE_P(Carriers, DroppedWork, ::testing::ValuesIn(sites()),
                         [](const auto& site) { return site.param.name; });

}  // namespace
}  // namespace trireme::dropped_works_test
