// A transformer on packs gives what it gives on their documents one by one.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <trireme/data/packed_source.h>
#include <trireme/models/build.h>
#include <trireme/train/evaluate.h>
#include <numeric>

#include "cases.h"

namespace trireme::models::packed_gpt_test {
namespace {

constexpr int64_t kTokens = 12;

class Texts : public Source {
 public:
  explicit Texts(std::vector<int64_t> lengths) {
    const auto generator = at::detail::createCPUGenerator(5);
    for (const int64_t length : lengths)
      documents.push_back(at::randint(29, {length}, generator, at::kLong));
  }
  int64_t size() const override { return std::ssize(documents); }
  Example get(const Draw& draw) const override {
    return {documents[static_cast<size_t>(draw.index)], {}};
  }
  std::vector<at::Tensor> documents;
};

const std::vector<int64_t> kLengths = {5, 12, 3, 7, 1, 4, 2, 9, 6};

std::shared_ptr<const PackedSource> packs_of(const std::shared_ptr<const Texts>& texts) {
  return std::make_shared<PackedSource>(
      texts, std::make_shared<const plan::Packing>(
                 texts->size(),
                 [texts](int64_t i) { return texts->documents[static_cast<size_t>(i)].size(0); },
                 plan::PackingOptions{.tokens = kTokens}));
}

Model gpt(bool is_packed) {
  at::manual_seed(3);
  InputSpec input{{kTokens}, 29};
  input.is_packed = is_packed;
  Model model = make_factory(
      {.name = "gpt", .layers = 2, .width = 16, .heads = 2, .vocabulary = 29, .context = kTokens},
      input)();
  model.module->to(at::kDouble);
  return model;
}

Batch batch_of(const Source& source) {
  std::vector<int64_t> all(static_cast<size_t>(source.size()));
  std::iota(all.begin(), all.end(), int64_t{0});
  const Example rows = source.get_batch(Draws(all));
  Batch batch{.data = rows.data, .target = rows.target, .more = rows.more, .indices = all};
  batch.global_size = batch.global_used = batch.size();
  return batch;
}

TEST(PackedGpt, GivesTheLogitsOfTheDocumentsOneByOne) {
  const auto texts = std::make_shared<const Texts>(kLengths);
  const auto packs = packs_of(texts);
  const Model packed = gpt(true), plain = gpt(false);
  EXPECT_THAT(packed.inputs, testing::ElementsAre("data", "positions", "documents"));
  const Batch batch = batch_of(*packs);
  const at::Tensor in_packs = output_of(packed, batch).view({batch.size(), kTokens, 29});
  const at::Tensor by_blocks =
      output_of(packed.blocks, {batch.data, batch.tensor("positions"), batch.tensor("documents")});
  EXPECT_TRUE(at::equal(by_blocks, in_packs.flatten(0, 1)));
  const plan::Packing packing(texts->size(),
                              [](int64_t i) { return kLengths[static_cast<size_t>(i)]; },
                              {.tokens = kTokens});
  double sum = 0;
  int64_t targets = 0;
  for (int64_t pack = 0; pack < packing.packs(); ++pack) {
    int64_t place = 0;
    for (const auto& [document, from, count] : packing.pack(pack)) {
      const at::Tensor tokens = texts->documents[static_cast<size_t>(document)];
      const at::Tensor alone = plain.forward(tokens.unsqueeze(0));
      EXPECT_TRUE(at::allclose(in_packs[pack].narrow(0, place, count), alone, 1e-10, 1e-12));
      place += count;
      if (count < 2) continue;
      sum += at::cross_entropy_loss(alone.narrow(0, 0, count - 1), tokens.narrow(0, 1, count - 1),
                                    {}, at::Reduction::Sum)
                 .item<double>();
      targets += count - 1;
    }
  }
  Batch counted = batch;
  counted.global_targets = counted_targets(batch);
  EXPECT_EQ(counted.global_targets, targets);
  EXPECT_NEAR(loss_of({}, in_packs.flatten(0, 1), counted).item<double>(),
              sum / static_cast<double>(targets), 1e-12);
}

// Without the documents a token sees those before it in its pack: the test above can fail.
TEST(PackedGpt, TheDocumentsMatter) {
  const auto packs = packs_of(std::make_shared<const Texts>(kLengths));
  const Model packed = gpt(true);
  Batch batch = batch_of(*packs);
  const at::Tensor right = output_of(packed, batch);
  batch.more["documents"] = at::zeros_like(batch.tensor("documents"));
  EXPECT_FALSE(at::allclose(output_of(packed, batch), right, 1e-3, 1e-3));
}

// Shares of any size, one of which has no target, add up to the loss of the whole batch.
TEST(PackedGpt, TheSharesOfABatchAddUpToTheMeanOverItsTargets) {
  const auto packs = packs_of(std::make_shared<const Texts>(kLengths));
  const Model packed = gpt(true);
  Batch batch = batch_of(*packs);
  batch.more["documents"][0].fill_(-1);
  batch.target[0].fill_(kNoTarget);
  batch.global_targets = counted_targets(batch);
  const auto loss = [&](const Batch& part) {
    return loss_of({}, output_of(packed, part), part).item<double>();
  };
  const double whole = loss(batch);
  double sum = 0;
  for (const auto& [from, count] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 2}, {3, batch.size() - 3}})
    sum += loss(batch.part(from, count)) * static_cast<double>(count) /
           static_cast<double>(batch.size());
  EXPECT_NEAR(sum, whole, 1e-12);
  EXPECT_NEAR(loss(batch.part(0, 1)), 0, 1e-12);
}

TEST(PackedGpt, TheSourceKnowsTheTargetsOfEachPack) {
  const auto packs = packs_of(std::make_shared<const Texts>(kLengths));
  for (int64_t pack = 0; pack < packs->size(); ++pack) {
    const auto size = packs->size_of({pack});
    ASSERT_TRUE(size);
    EXPECT_EQ(size->targets, packs->get({pack}).target.ne(kNoTarget).sum().item<int64_t>());
  }
}

}  // namespace
}  // namespace trireme::models::packed_gpt_test
