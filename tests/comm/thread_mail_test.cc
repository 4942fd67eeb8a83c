#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ranks.h"

namespace trireme::thread_mail_test {
namespace {

constexpr int64_t kElements = 100003;

at::Tensor values(int start) { return at::arange(start, start + kElements, at::kInt); }

class ThreadMessages : public ::testing::Test {
 protected:
  Group& sender() { return *groups_[0]; }
  Group& receiver() { return *groups_[1]; }
  tests::Groups groups_ = tests::thread_groups(2);
};

TEST_F(ThreadMessages, AnEarlyReceiveIsFilledByTheSender) {
  const at::Tensor received = at::zeros({kElements}, at::kInt);
  const WorkPtr receiving = receiver().recv_async(received, 0);
  EXPECT_FALSE(receiving->is_done());
  const WorkPtr sending = sender().send_async(values(1), 1);
  EXPECT_TRUE(sending->is_done());
  EXPECT_TRUE(receiving->is_done());
  EXPECT_TRUE(received.equal(values(1)));
}

TEST_F(ThreadMessages, ALateReceiveReadsTheTensorOfTheSender) {
  const WorkPtr sending = sender().send_async(values(2), 1);
  EXPECT_FALSE(sending->is_done()) << "its tensor must stay as it is";
  const at::Tensor received = at::zeros({kElements}, at::kInt);
  receiver().recv(received, 0);
  EXPECT_TRUE(sending->is_done());
  EXPECT_TRUE(received.equal(values(2)));
}

TEST_F(ThreadMessages, ASenderThatWaitsDoesNotWaitForTheReceiver) {
  const at::Tensor sent = values(3);
  sender().send(sent, 1);
  sent.zero_();
  const at::Tensor received = at::zeros({kElements}, at::kInt);
  receiver().recv(received, 0);
  EXPECT_TRUE(received.equal(values(3)));
}

TEST_F(ThreadMessages, KeepTheirOrderWhoeverComesFirst) {
  tests::on_threads(2, [&](int rank) {
    std::vector<WorkPtr> works;
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 300; ++i) {
      tensors.push_back(at::full({1 + i % 5}, rank == 0 ? i : -1, at::kInt));
      works.push_back(rank == 0 ? sender().send_async(tensors.back(), 1, i % 3)
                                : receiver().recv_async(tensors.back(), 0, i % 3));
      if (i % 7 == rank) works.back()->wait();
    }
    for (int i = 0; i < 300; ++i) {
      works[static_cast<size_t>(i)]->wait();
      EXPECT_TRUE(tensors[static_cast<size_t>(i)].equal(at::full({1 + i % 5}, i, at::kInt))) << i;
    }
  });
}

TEST_F(ThreadMessages, ASendThatNobodyAwaitsIsFinished) {
  (void)sender().send_async(values(4), 1);
  const at::Tensor received = at::zeros({kElements}, at::kInt);
  receiver().recv(received, 0);
  EXPECT_TRUE(received.equal(values(4)));
}

TEST_F(ThreadMessages, AnAbortEndsAReceive) {
  const WorkPtr receiving = receiver().recv_async(at::zeros({4}), 0);
  sender().abort("enough");
  EXPECT_THROW(receiving->wait(), Error);
  EXPECT_THROW((void)receiving->is_done(), Error);
}

}  // namespace
}  // namespace trireme::thread_mail_test
