#include <trireme/data/mixture_source.h>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <trireme/data/loader.h>

#include <set>
#include <tuple>

#include "data_files.h"
#include "numbered.h"

namespace trireme::mixture_source_test {
namespace {

using data::expect_error;
using testing::HasSubstr;

struct Mixed {
  std::shared_ptr<const plan::Mixture> mixture;
  std::shared_ptr<const Source> source;
  LoaderOptions options;
};

// Sources of 30 and 10 samples, of which every batch of 4 has three and one.
Mixed mixed(plan::OrderKind kind, int64_t batch) {
  plan::MixtureOptions options{
      .sources = {{"a", 30, {}}, {"b", 10, {}}}, .weights = {{{}, {3, 1}}}, .samples = 24};
  Mixed made;
  made.mixture = std::make_shared<const plan::Mixture>(options);
  made.source = std::make_shared<MixtureSource>(
      std::vector<std::shared_ptr<const Source>>{numbered(30), numbered(10)}, made.mixture);
  made.options.batch = batch;
  made.options.seed = 3;
  made.options.shuffle = kind;
  made.options.shuffle.mixture = made.mixture;
  return made;
}

TEST(MixtureSource, GivesTheSamplesOfTheSourcesInTheirShares) {
  for (const auto kind : {plan::OrderKind::full, plan::OrderKind::index, plan::OrderKind::none}) {
    Mixed m = mixed(kind, 4);
    Loader loader(m.source, m.options);
    EXPECT_EQ(loader.batches_per_epoch(), 6);
    std::set<std::tuple<size_t, int64_t, int64_t>> seen;
    for (int step = 0; step < 20; ++step) {
      const Batch batch = loader.next();
      int64_t of_b = 0;
      for (int64_t row = 0; row < batch.size(); ++row) {
        const auto [source, pass, index] =
            m.mixture->sample_of(batch.position.epoch, batch.indices[static_cast<size_t>(row)]);
        EXPECT_EQ(batch.target[row].item<int64_t>(), index);
        EXPECT_TRUE(seen.emplace(source, pass, index).second);
        of_b += source == 1;
      }
      EXPECT_EQ(of_b, 1);
    }
  }
}

TEST(MixtureSource, GivesTheSameBatchesToAnyNumberOfRanks) {
  Mixed m = mixed(plan::OrderKind::full, 7);
  Loader whole(m.source, m.options);
  std::vector<Loader> parts;
  for (int rank = 0; rank < 3; ++rank) parts.emplace_back(m.source, m.options, rank, 3);
  for (int step = 0; step < 9; ++step) {
    std::vector<at::Tensor> rows;
    for (Loader& part : parts) rows.push_back(part.next().target);
    EXPECT_TRUE(at::equal(at::cat(rows), whole.next().target));
  }
}

TEST(MixtureSource, GoesOnFromAPosition) {
  Mixed m = mixed(plan::OrderKind::index, 5);
  Loader loader(m.source, m.options), resumed(m.source, m.options);
  for (int step = 0; step < 7; ++step) loader.next();
  resumed.seek(loader.position());
  for (int step = 0; step < 7; ++step) EXPECT_EQ(resumed.next().indices, loader.next().indices);
}

class WithDamage : public Numbered {
 public:
  WithDamage(int64_t samples, std::vector<int64_t> records)
      : Numbered(samples), records_(std::move(records)) {}
  std::vector<int64_t> bad_records() const override { return records_; }

 private:
  const std::vector<int64_t> records_;
};

TEST(MixtureSource, TellsTheDamagedRecordsOfItsSourcesApart) {
  const Mixed m = mixed(plan::OrderKind::full, 4);
  const MixtureSource source({std::make_shared<WithDamage>(30, std::vector<int64_t>{3, 7}),
                              std::make_shared<WithDamage>(10, std::vector<int64_t>{3})},
                             m.mixture);
  EXPECT_EQ(source.bad_records(), (std::vector<int64_t>{6, 14, 7}));
}

TEST(MixtureSource, RefusesSourcesThatAreNotThoseOfThePlan) {
  const Mixed m = mixed(plan::OrderKind::full, 4);
  const auto made = [&](std::vector<std::shared_ptr<const Source>> sources) {
    return [&, sources] { MixtureSource(sources, m.mixture); };
  };
  expect_error(made({numbered(30)}), ErrorCode::invalid_argument, {"1 sources"});
  expect_error(made({numbered(30), numbered(11)}), ErrorCode::invalid_argument,
               {"source b has 11 samples, and 10 in the plan"});
  expect_error([&] { Loader(numbered(30), m.options); }, ErrorCode::invalid_argument,
               {"the source has 30 samples"});
}

}  // namespace
}  // namespace trireme::mixture_source_test
