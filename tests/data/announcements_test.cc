#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <trireme/data/chained_source.h>
#include <trireme/data/kinds/zip_set.h>
#include <trireme/data/mixture_source.h>
#include <trireme/data/ordered_batches.h>
#include <trireme/data/packed_source.h>
#include <trireme/data/pipeline/document_source.h>
#include <trireme/data/pipeline/mixed_source.h>
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "made_documents.h"
#include "made_records.h"
#include "numbered.h"

namespace trireme::announcements_test {
namespace {

using Sources = std::vector<std::shared_ptr<const Source>>;

// The announcements that were not taken back, by epoch and number.
class Record {
 public:
  void announce(int64_t epoch, const std::vector<int64_t>& numbers) {
    const std::lock_guard lock(mutex_);
    for (const int64_t number : numbers) ++open_[{epoch, number}];
    announced_ += std::ssize(numbers);
  }
  void release(int64_t epoch, const std::vector<int64_t>& numbers) {
    const std::lock_guard lock(mutex_);
    for (const int64_t number : numbers) is_balanced_ &= --open_[{epoch, number}] >= 0;
  }
  void read(int64_t epoch, int64_t number) {
    const std::lock_guard lock(mutex_);
    unannounced_ += open_[{epoch, number}] > 0 ? 0 : 1;
    ++reads_;
  }
  int64_t announced() const { return announced_; }
  int64_t reads() const { return reads_; }
  int64_t unannounced() const { return unannounced_; }  // Reads without an announcement.
  bool is_open(int64_t epoch, int64_t number) const {
    const auto found = open_.find({epoch, number});
    return found != open_.end() && found->second > 0;
  }
  bool is_over() const {
    return is_balanced_ && std::ranges::all_of(open_, [](const auto& e) { return e.second == 0; });
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, int64_t> open_;
  int64_t announced_ = 0, reads_ = 0, unannounced_ = 0;
  bool is_balanced_ = true;
};

void expect_good(const Record& record) {
  EXPECT_GT(record.reads(), 0);
  EXPECT_EQ(record.unannounced(), 0);
  EXPECT_TRUE(record.is_over());
}

class Recording : public Numbered {
 public:
  Recording(int64_t samples, int64_t ahead) : Numbered(samples), ahead_(ahead) {}
  int64_t reads_ahead() const override { return ahead_; }
  void announce(const Draws& draws) const override { record.announce(draws.epoch, draws.indices); }
  void release(const Draws& draws) const override { record.release(draws.epoch, draws.indices); }
  Example get(const Draw& draw) const override {
    record.read(draw.epoch, draw.index);
    if (draw.index == fails_at) throw Error(ErrorCode::corrupt, "data", "a damaged sample");
    return Numbered::get(draw);
  }
  bool leaves_out() const override { return leaves_some_out; }
  std::optional<Example> get_if_kept(const Draw& draw) const override {
    Example example = get(draw);
    return leaves_some_out && draw.index % 3 == 1 ? std::nullopt : std::optional(example);
  }
  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override {
    return kept_one_by_one(*this, draws, left_out, none_);
  }

  mutable Record record;
  std::atomic<int64_t> fails_at = -1;
  bool leaves_some_out = false;

 private:
  const int64_t ahead_;
  const Numbered none_{1};
};

std::shared_ptr<Recording> recording(int64_t samples, int64_t ahead) {
  return std::make_shared<Recording>(samples, ahead);
}

LoaderOptions options_with(int threads) {
  LoaderOptions options;
  options.batch = 8;
  options.threads = threads;
  options.prefetch = threads > 0 ? 6 : 0;  // More batches than are worth announcing.
  return options;
}

void load(const std::shared_ptr<const Source>& source, const LoaderOptions& options,
          int ranks = 3) {
  for (int rank = 0; rank < ranks; ++rank) {
    Loader loader(source, options, rank, ranks);
    for (int i = 0; i < 20; ++i) loader.next();
  }
}

TEST(Announcements, AreTakenBackOnceForEachSample) {
  for (const int threads : {0, 3}) {
    const auto source = recording(40, 10);
    load(source, options_with(threads));
    expect_good(source->record);
  }
}

TEST(Announcements, AreTakenBackForSamplesThatAreLeftOut) {
  for (const int threads : {0, 3}) {
    const auto source = recording(40, 10);
    source->leaves_some_out = true;
    load(source, options_with(threads));
    expect_good(source->record);
  }
}

TEST(Announcements, AreTakenBackAfterAnError) {
  for (const int threads : {0, 3}) {
    const auto source = recording(40, 10);
    source->fails_at = 17;
    int errors = 0;
    {
      Loader loader(source, options_with(threads));
      for (int i = 0; i < 12; ++i) {
        try {
          loader.next();
        } catch (const Error&) {
          if (++errors == 2) source->fails_at = -1;
        }
      }
    }
    EXPECT_EQ(errors, 2);
    EXPECT_TRUE(source->record.is_over());
  }
}

TEST(Announcements, StayWhereTheCallerSeeksForward) {
  for (const int64_t to : {int64_t{16}, int64_t{24}, int64_t{3}}) {
    const auto source = recording(40, 24);  // Three batches.
    LoaderOptions options = options_with(0);
    options.shuffle = false;
    {
      Loader loader(source, options);
      loader.next();
      loader.seek({.epoch = 0, .consumed = to});
      EXPECT_EQ(source->record.is_open(0, 8), false);
      EXPECT_EQ(source->record.is_open(0, 16), to == 16);
      next_samples(loader, 5);
      loader.seek({.epoch = 0, .consumed = 8});
      next_samples(loader, 2);
    }
    expect_good(source->record);
  }
}

TEST(Announcements, ReachTheSourcesOfAMixtureUnderTheirOwnNumbers) {
  for (const int threads : {0, 3}) {
    const auto a = recording(30, 10), b = recording(10, 6);
    b->leaves_some_out = true;
    plan::MixtureOptions mixture{.sources = {{"a", 30, {}}, {"b", 10, {}}, {"c", 9, {}}},
                                 .weights = {{{}, {2, 1, 1}}},
                                 .samples = 48};
    LoaderOptions options = options_with(threads);
    options.shuffle.mixture = std::make_shared<const plan::Mixture>(mixture);
    const auto source =
        std::make_shared<MixtureSource>(Sources{a, b, numbered(9)}, options.shuffle.mixture);
    EXPECT_EQ(source->reads_ahead(), 16);
    load(source, options);
    expect_good(a->record);
    expect_good(b->record);
  }
}

TEST(Announcements, ReachTheSourcesOfAChain) {
  const auto a = recording(30, 10), b = recording(11, 30);
  const auto source = std::make_shared<ChainedSource>(Sources{a, numbered(5), b});
  EXPECT_EQ(source->reads_ahead(), 30);
  b->fails_at = 3;
  LoaderOptions options = options_with(2);
  options.shuffle = false;
  {
    Loader loader(source, options);
    EXPECT_THROW(next_samples(loader, 6), Error);
  }
  EXPECT_GT(b->record.announced(), 0);
  EXPECT_TRUE(a->record.is_over());
  EXPECT_TRUE(b->record.is_over());
}

TEST(Announcements, ReachASourceWithOtherNumbers) {
  const auto source = recording(10, 5);
  load(std::make_shared<RenumberedSource>(source, 30, [](int64_t i) { return i % 10; }),
       options_with(2));
  expect_good(source->record);
}

// A rank asks for the sample before its share too.
TEST(Announcements, NameTheNeighbourThatIsMixed) {
  const auto source = recording(40, 10);
  load(data::mix_source(source, data::BatchMix(data::parse_stages("data.stages", "mixup"), 40)),
       options_with(2));
  expect_good(source->record);
}

// An evaluation may end early.
TEST(Announcements, OfBatchesInOrderAreTakenBack) {
  for (const int threads : {0, 3})
    for (const int64_t most : {100, 2}) {
      const auto source = recording(40, 10);
      {
        data::OrderedBatches batches(source, {3, 38, 4}, {.threads = threads, .batches = 6},
                                     [&](const Draws& draws) {
                                       Example rows = source->get_batch(draws);
                                       return Batch{.data = rows.data, .target = rows.target};
                                     });
        for (int64_t i = 0; batches.has_next() && i < most; ++i) batches.next();
        EXPECT_EQ(source->record.announced() >= 35, most == 100);
      }
      expect_good(source->record);
    }
}

class RecordingReader : public data::MadeDocuments {
 public:
  using MadeDocuments::MadeDocuments;
  void read(int64_t index, records::Record& into) const override {
    record.read(0, index);
    MadeDocuments::read(index, into);
  }
  int64_t reads_ahead() const override { return 4; }
  void announce(std::span<const int64_t> numbers) const override {
    record.announce(0, {numbers.begin(), numbers.end()});
  }
  void release(std::span<const int64_t> numbers) const override {
    record.release(0, {numbers.begin(), numbers.end()});
  }
  mutable Record record;
};

TEST(Announcements, NameTheDocumentsOfPacks) {
  const auto reader =
      std::make_shared<RecordingReader>(std::vector<int64_t>{3, 9, 2, 5, 4, 7, 3, 2});
  const std::vector<int64_t> subset{1, 2, 3, 5, 7};
  const auto length = [&](int64_t document) {
    return *reader->length(subset[static_cast<size_t>(document)]);
  };
  const auto packing = std::make_shared<const plan::Packing>(
      5, length, plan::PackingOptions{.tokens = 6, .window = 3, .too_long = plan::TooLong::split});
  const auto source = std::make_shared<PackedSource>(
      std::make_shared<data::DocumentSource>(reader, "tokens", subset), packing);
  EXPECT_GT(source->reads_ahead(), 0);
  LoaderOptions options = options_with(2);
  options.batch = 3;
  load(source, options, 1);
  expect_good(reader->record);
}

TEST(Announcements, ReachAllReadersOfAZip) {
  const auto reader = std::make_shared<RecordingReader>(std::vector<int64_t>{3, 3, 3, 3});
  const auto zip =
      data::zip_readers({{"a", std::make_shared<data::MadeImages>(4, 2, 2)}, {"b", reader}});
  EXPECT_EQ(zip->reads_ahead(), 4);
  const std::vector<int64_t> numbers{2, 1};
  zip->announce(numbers);
  EXPECT_EQ(reader->record.announced(), 2);
  EXPECT_FALSE(reader->record.is_over());
  zip->release(numbers);
  EXPECT_TRUE(reader->record.is_over());
}

}  // namespace
}  // namespace trireme::announcements_test
