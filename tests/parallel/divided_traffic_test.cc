#include "divided_layers.h"

#include <torch/nn/modules/container/sequential.h>
#include <trireme/parallel/nn/attention.h>

namespace trireme::tests::divided_traffic_test {
namespace {

constexpr int64_t kSamples = 3, kTokens = 8;

// Shoeybi et al. 2019, section 3: four all-reduces in a layer of a transformer and a step.
// Korthikanti et al. 2022, section 4.2.2: each becomes a reduce-scatter and an all-gather, which
// move as many bytes together.
TEST(DividedTraffic, IsThatOfFourAllReducesInALayer) {
  for (const bool divides : {false, true})
    for (const int size : {2, 4})
      on_ranks(thread_groups(size), [&](Group& group) {
        const auto ranks = shared(group);
        nn::SelfAttention attention(
            nn::SelfAttentionOptions{.width = 64, .heads = 4, .divides_tokens = divides});
        torch::nn::Sequential mlp(
            nn::ColumnLinear(
                nn::ColumnLinearOptions{.in = 64, .out = 256, .takes_tokens = divides}),
            nn::RowLinear(nn::RowLinearOptions{.in = 256, .out = 64, .gives_tokens = divides}));
        nn::divide_layers(*attention, ranks);
        nn::divide_layers(*mlp, ranks);
        const int64_t tokens = divides ? kTokens / size : kTokens;
        const at::Tensor x = normal({kSamples, tokens, 64}, 6, at::kFloat).requires_grad_(true);
        const Traffic before = group.traffic();
        const at::Tensor y = x + attention(x);
        (y + mlp->forward(y)).sum().backward();
        const Traffic moved = group.traffic() - before;
        EXPECT_EQ(moved.operations, divides ? 8 : 4);
        const at::Tensor whole = at::zeros({kSamples, kTokens, 64});
        const Traffic start = group.traffic();
        for (int i = 0; i < 4; ++i) {
          if (divides) {
            group.reduce_scatter(whole,
                                 whole.flatten().narrow(0, 0, whole.numel() / size).clone());
            group.all_gather(whole.flatten().narrow(0, 0, whole.numel() / size), whole.clone());
          } else {
            group.all_reduce(whole);
          }
        }
        EXPECT_EQ(moved.bytes_sent, (group.traffic() - start).bytes_sent);
        // A ring, or any plan that sends each byte as rarely: 2 (N - 1) / N of the activation.
        EXPECT_GE(moved.bytes_sent, 4 * 2 * whole.nbytes() * (size - 1) / size);
      });
}

}  // namespace
}  // namespace trireme::tests::divided_traffic_test
