// Errors of a rank whose job has lost a worker: its own, or a part of that loss.
#include <c10/util/Exception.h>

#include <trireme/train/lost_peer.h>
#include <memory>
#include <stdexcept>

#include "lost_worker.h"

namespace trireme::lost_peer_test {
namespace {

void wait_for_a_loss(const World& world) {
  const Deadline deadline = Deadline::after(Milliseconds(20000));
  while (!world.lost_a_worker() && !deadline.expired()) std::this_thread::yield();
  ASSERT_TRUE(world.lost_a_worker());
}

template <typename Inner>
bool is_of_lost_peer_inside(const Inner& inner, const World& world) {
  try {
    try {
      throw inner;
    } catch (const std::exception&) {
      std::throw_with_nested(std::runtime_error("epoch 3"));
    }
  } catch (const std::exception& error) {
    return is_of_lost_peer(error, world);
  }
}

TEST(LostPeer, ErrorsOfCommunicationAloneAreALoss) {
  tests::Workers workers(2);
  workers.on_each([](World& world) { world.make_groups(); });
  workers.vanish(1);
  const World& world = workers[0];
  wait_for_a_loss(world);
  const auto of = [](ErrorCode code) { return Error(code, "comm", "it was", "again"); };
  for (const ErrorCode code : {ErrorCode::peer_lost, ErrorCode::timeout, ErrorCode::aborted,
                               ErrorCode::invalid_argument, ErrorCode::io}) {
    EXPECT_TRUE(is_of_lost_peer(of(code), world)) << to_string(code);
    EXPECT_TRUE(is_of_lost_peer_inside(of(code), world)) << to_string(code);
  }
  for (const ErrorCode code : {ErrorCode::internal, ErrorCode::corrupt}) {
    EXPECT_FALSE(is_of_lost_peer(of(code), world)) << to_string(code);
    EXPECT_FALSE(is_of_lost_peer_inside(of(code), world)) << to_string(code);
  }
  EXPECT_FALSE(is_of_lost_peer(std::runtime_error("[comm] peer lost"), world));
  EXPECT_FALSE(is_of_lost_peer(c10::Error({__func__, __FILE__, 1}, "shapes differ"), world));
  EXPECT_FALSE(is_of_lost_peer_inside(std::out_of_range("no such word"), world));
}

// LibTorch's backward gives an exception of a hook on as it is.
TEST(LostPeer, AnErrorThatPassesThroughABackwardKeepsItsType) {
  const at::Tensor x = at::ones({2}, at::kDouble).requires_grad_();
  x.register_hook([](const at::Tensor&) -> at::Tensor {
    throw Error(ErrorCode::peer_lost, "comm", "rank 1 was lost");
  });
  EXPECT_THROW((2 * x).sum().backward(), Error);
}

// Process 2 is lost in step 5, and process 1 throws when it has seen that.
TEST(LostPeer, AnExceptionRightBehindALossEndsItsProcess) {
  const auto throw_behind_it = [](int process, const World& world, int64_t step) {
    if (process != 1 || step != 5) return;
    wait_for_a_loss(world);
    throw std::out_of_range("no such word");
  };
  const tests::AfterALoss result =
      tests::train_with_a_loss(tests::options(), tests::job().optimizer, 1, throw_behind_it);
  EXPECT_EQ(result.errors[1], "no such word");
  EXPECT_EQ(result.errors[0], "");
  EXPECT_EQ(result.reports[0].world_size, 1);
  EXPECT_TRUE(result.reports[0].samples.exactly_once());
}

}  // namespace
}  // namespace trireme::lost_peer_test
