// Tensors of a device in groups of the host.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <trireme/comm/staging.h>

#include "../base/expect_error.h"
#include "../stand_in/stand_in_device.h"
#include "ranks.h"

namespace trireme::staging_test {
namespace {

using tests::kStandIn;
using tests::on_ranks;

// Each operation of a rank, on tensors of its device and of the host; returns the results.
std::vector<at::Tensor> results_of(Group& group, at::Device device, at::ScalarType type) {
  const int rank = group.rank(), size = group.size();
  const auto options = at::TensorOptions(device).dtype(type);
  const auto numbers = [&](int64_t count) {
    return (at::arange(count, at::kDouble) + 10 * rank).to(options);
  };
  std::vector<at::Tensor> results;
  const at::Tensor summed = numbers(5);
  group.all_reduce(summed);
  results.push_back(summed);
  // A view in the middle of a tensor, as a bucket is of its memory.
  const at::Tensor whole = numbers(9);
  group.all_reduce_async(whole.narrow(0, 2, 4))->wait();
  results.push_back(whole);
  const at::Tensor scattered = at::zeros({2}, options);
  group.reduce_scatter(numbers(2 * size), scattered);
  results.push_back(scattered);
  const at::Tensor gathered = at::zeros({3 * size}, options);
  group.all_gather(numbers(3), gathered);
  results.push_back(gathered);
  const at::Tensor told = numbers(4);
  group.broadcast(told, size - 1);
  results.push_back(told);
  const at::Tensor swapped = at::zeros({2 * size}, options);
  group.all_to_all(numbers(2 * size), swapped);
  results.push_back(swapped);
  const at::Tensor at_root = rank == 0 ? at::zeros({2 * size}, options) : at::Tensor();
  group.gather(numbers(2), at_root, 0);
  if (rank == 0) results.push_back(at_root);
  const at::Tensor received = at::zeros({3}, options);
  const WorkPtr sent = group.send_async(numbers(3), (rank + 1) % size, 7);
  const WorkPtr comes = group.recv_async(received, (rank + size - 1) % size, 7);
  while (!comes->wait_for(Milliseconds(50))) {
  }
  sent->wait();
  results.push_back(received);
  // The tensors of one operation may be on different devices.
  const at::Tensor on_host = at::zeros({size}, at::TensorOptions().dtype(type));
  group.all_gather(numbers(1), on_host);
  results.push_back(on_host);
  return results;
}

class Staging : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() { tests::set_stand_in_devices(3); }
};

TEST_P(Staging, GivesTensorsOfADeviceWhatThoseOfTheHostGet) {
  WorldOptions options = tests::world_options();
  options.backend = GetParam() == "threads" ? "auto" : GetParam();
  std::optional<tests::Workers> workers;
  tests::Groups groups;
  if (GetParam() == "threads")
    groups = tests::thread_groups(3);
  else
    groups = workers.emplace(3, options).make_groups();
  on_ranks(groups, [&](Group& group) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong}) {
      const at::Device device(kStandIn, static_cast<c10::DeviceIndex>(group.rank()));
      const auto expected = results_of(group, at::kCPU, type);
      const auto found = results_of(group, device, type);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].device(), i + 1 < found.size() ? device : at::Device(at::kCPU)) << i;
        EXPECT_TRUE(at::equal(found[i].cpu(), expected[i])) << GetParam() << ", operation " << i;
      }
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Backends, Staging, ::testing::Values("threads", "shm", "tcp", "gloo"));

TEST_P(Staging, KeepsAutogradOutOfTheOperation) {
  if (GetParam() != "threads") return;
  on_ranks(tests::thread_groups(2), [&](Group& group) {
    const at::Tensor leaf = at::ones({2}, at::Device(kStandIn, 0)).requires_grad_();
    group.all_reduce(leaf);
    EXPECT_TRUE(at::equal(leaf.detach().cpu(), at::full({2}, 2.0)));
    EXPECT_TRUE(leaf.is_leaf());
  });
}

TEST(StagingRule, LetsOneOfTheTwoBeTheHost) {
  EXPECT_TRUE(comm::can_stage(at::Device(at::kCUDA, 1), at::kCPU));
  EXPECT_TRUE(comm::can_stage(at::kCPU, at::Device(at::kCUDA, 1)));
  EXPECT_FALSE(comm::can_stage(at::Device(at::kCUDA, 0), at::Device(at::kCUDA, 1)));
  EXPECT_FALSE(comm::can_stage(at::kMeta, at::kCPU));
}

}  // namespace
}  // namespace trireme::staging_test
