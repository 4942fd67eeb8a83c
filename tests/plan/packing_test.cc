#include <trireme/plan/packing.h>

#include <gmock/gmock.h>
#include <trireme/base/hash.h>
#include <algorithm>
#include <map>

#include "../base/expect_error.h"

namespace trireme::plan::packing_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Packing packing_of(std::vector<int64_t> lengths, PackingOptions options) {
  const auto documents = static_cast<int64_t>(lengths.size());
  return Packing(
      documents,
      [lengths = std::move(lengths)](int64_t document) {
        return lengths[static_cast<size_t>(document)];
      },
      options);
}

std::vector<int64_t> some_lengths(size_t documents, uint64_t seed, uint64_t below) {
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < documents; ++i)
    lengths.push_back(static_cast<int64_t>(mix64(seed, i) % below));
  return lengths;
}

// Each token of each document is in one pack, for small sizes of everything.
TEST(Packing, HasEachTokenOnce) {
  for (uint64_t seed = 0; seed < 60; ++seed)
    for (const int64_t tokens : {1, 2, 7, 16})
      for (const int64_t window : {1, 3, 100}) {
        const std::vector<int64_t> lengths = some_lengths(seed, seed, 40);
        const Packing packing = packing_of(lengths, {tokens, window, TooLong::split});
        ASSERT_NO_THROW(check(packing));
        std::vector<std::vector<int>> uses;
        for (const int64_t length : lengths) uses.emplace_back(length, 0);
        for (int64_t number = 0; number < packing.packs(); ++number)
          for (const auto& [document, from, count] : packing.pack(number))
            for (int64_t token = from; token < from + count; ++token)
              ++uses[static_cast<size_t>(document)][static_cast<size_t>(token)];
        for (const std::vector<int>& of_document : uses)
          ASSERT_TRUE(std::all_of(of_document.begin(), of_document.end(),
                                  [](int times) { return times == 1; }));
      }
}

TEST(Packing, PutsEachDocumentWhereItFitsBest) {
  const Packing packing = packing_of({4, 6, 3, 7, 10}, {.tokens = 10});
  ASSERT_EQ(packing.packs(), 3);
  EXPECT_THAT(packing.pack(0), ElementsAre(PackPart{4, 0, 10}));
  EXPECT_THAT(packing.pack(1), ElementsAre(PackPart{2, 0, 3}, PackPart{3, 0, 7}));
  EXPECT_THAT(packing.pack(2), ElementsAre(PackPart{0, 0, 4}, PackPart{1, 0, 6}));
  EXPECT_EQ(packing.fill(), 1);
  EXPECT_EQ(packing.describe(), "5 documents of 30 tokens in 3 packs of 10: 100.00% full\n");
}

TEST(Packing, SplitsALongDocument) {
  const Packing packing = packing_of({25, 4}, {.tokens = 10, .too_long = TooLong::split});
  ASSERT_EQ(packing.packs(), 3);
  EXPECT_THAT(packing.pack(1), ElementsAre(PackPart{0, 10, 10}));
  EXPECT_THAT(packing.pack(2), ElementsAre(PackPart{0, 20, 5}, PackPart{1, 0, 4}));
}

TEST(Packing, FillsPacksOfUsualTextsNearlyWhole) {
  const Packing packing = packing_of(some_lengths(4096, 3, 1000), {.tokens = 2048});
  EXPECT_GT(packing.fill(), 0.99);
}

TEST(Packing, IsTheSameWhateverIsAskedFirst) {
  const std::vector<int64_t> lengths = some_lengths(200, 9, 30);
  const PackingOptions options{32, 20, TooLong::refuse};
  const Packing forward = packing_of(lengths, options), back = packing_of(lengths, options);
  for (int64_t number = back.packs() - 1; number >= 0; --number)
    EXPECT_EQ(back.pack(number), forward.pack(number));
}

TEST(Packing, RefusesWhatMakesNoSense) {
  const auto made = [](std::vector<int64_t> lengths, PackingOptions options) {
    return message_of(ErrorCode::invalid_argument, [&] { packing_of(lengths, options); });
  };
  EXPECT_THAT(made({4, 11}, {.tokens = 10}),
              AllOf(HasSubstr("document 1 has 11 tokens"), HasSubstr("split")));
  EXPECT_THAT(made({4}, {}), HasSubstr("a pack of 0 tokens"));
  EXPECT_THAT(made({4}, {.tokens = 10, .window = 0}), HasSubstr("windows of 0"));
  EXPECT_THAT(made({-1}, {.tokens = 10}), HasSubstr("document 0 has a length of -1"));
  const Packing packing = packing_of({4}, {.tokens = 10});
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { packing.pack(1); }),
              HasSubstr("pack 1"));
  EXPECT_EQ(packing_of({0, 0}, {.tokens = 10}).packs(), 0);
}

}  // namespace
}  // namespace trireme::plan::packing_test
