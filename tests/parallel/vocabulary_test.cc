#include "divided_layers.h"

#include <trireme/parallel/nn/vocabulary.h>

namespace trireme::tests::vocabulary_test {
namespace {

constexpr int64_t kVocabulary = 13;

TEST(VocabularyCrossEntropy, IsTheLossOfWholeLogits) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor targets = at::arange(24).mul(7).remainder(kVocabulary);
    at::Tensor whole =
        (normal({targets.numel(), kVocabulary}, 4) * 5).to(type).requires_grad_(true);
    const at::Tensor wide = type == at::kBFloat16 ? whole.to(at::kFloat) : whole;
    const at::Tensor expected = at::cross_entropy_loss(wide, targets);
    expected.backward();
    const double tolerance = type == at::kDouble ? 1e-12 : type == at::kFloat ? 1e-6 : 1e-3;
    for (const int size : {1, 2, 4})
      on_ranks(thread_groups(size), [&](Group& group) {
        const auto ranks = shared(group);
        const auto [first, last] = nn::range_of(kVocabulary, group.rank(), group.size());
        const at::Tensor mine =
            whole.detach().narrow(1, first, last - first).clone().requires_grad_(true);
        const at::Tensor loss =
            nn::vocabulary_cross_entropy(size == 1 ? mine.to(wide.scalar_type()) : mine, targets,
                                         kVocabulary, size == 1 ? nullptr : ranks);
        EXPECT_LE(difference(loss, expected), 10 * tolerance) << size;
        (loss * 1).backward();
        EXPECT_LE(difference(mine.grad(), whole.grad().narrow(1, first, last - first)), tolerance);
      });
  }
}

}  // namespace
}  // namespace trireme::tests::vocabulary_test
