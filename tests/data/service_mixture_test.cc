#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/data/data_kinds.h>
#include <trireme/data/loader.h>
#include <trireme/data/service/facts.h>
#include <trireme/data/service/served_parts.h>
#include <trireme/data/source_makers.h>
#include <string>

#include "../base/expect_error.h"
#include "data_files.h"
#include "service.h"

namespace trireme::data {
namespace service_mixture_tests {

using testing::HasSubstr;

// Two files of rows, of 30 and 20.
class Rows {
 public:
  Rows() {
    for (int i = 0; i < 50; ++i)
      rows_[i < 30 ? 0 : 1] += fmt::format("{},{},{}\n", i, 2 * i, i % 3);
    for (const size_t part : {size_t{0}, size_t{1}})
      paths_[part] =
          folder_.write(fmt::format("{}.csv", part), "x,y,label\n" + rows_[part]).string();
  }
  DataOptions options(const std::string& weight = "2", const std::string& more = "") const {
    DataOptions options;
    options.name = "mixture";
    options.sources = fmt::format(
        R"([{{"name": "csv", "path": "{}", "weight": "{}"{}}}, {{"name": "csv", "path": "{}"}}])",
        paths_[0], weight, more, paths_[1]);
    options.test_fraction = 0.2;
    return options;
  }

 private:
  const Folder folder_;
  std::string rows_[2], paths_[2];
};

Dataset read_mixture(const DataOptions& options) { return find_kind("mixture")->read(options); }

TEST(DataService, SamplesOfAMixtureAreThoseThatTheWorkerWouldMake) {
  const Rows rows;
  const Dataset data = read_mixture(rows.options());
  const Sources own = make_sources("mixture", data);
  SampleServer server(parts_to_serve(data), {.token = kSecret, .threads = 2});
  DataOptions asking = rows.options();
  asking.service = asks(address_of(server)).service;
  const Sources other = make_sources("mixture", read_mixture(asking));
  LoaderOptions loading{.batch = 7, .seed = 3, .threads = 0};
  loading.shuffle.mixture = data.mixture;
  Loader one(own.train, loading), two(other.train, loading);
  for (int64_t step = 0; step < 3 * one.batches_per_epoch(); ++step) {
    const Batch here = one.next(), there = two.next();
    EXPECT_EQ(here.indices, there.indices);
    EXPECT_TRUE(at::equal(here.data, there.data));
    EXPECT_TRUE(at::equal(here.target, there.target));
  }
  ASSERT_EQ(other.test->size(), own.test->size());
  const Draws all({0, 1, own.test->size() - 1});
  EXPECT_TRUE(at::equal(own.test->get_batch(all).data, other.test->get_batch(all).data));
  EXPECT_EQ(other.train->served()->made_here, 0);
  EXPECT_GT(other.train->served()->served, 100);
  EXPECT_EQ(other.test->served()->served, 3);

  DataOptions heavier = rows.options("3");
  heavier.service = asking.service;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { make_sources("mixture", read_mixture(heavier)); }),
              HasSubstr("the mixture (sizes, weights"));
}

TEST(DataService, RefusesWhatAMixtureCannotHave) {
  const Rows rows;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { read_mixture(rows.options("2", R"(, "service": "host")")); }),
              HasSubstr("whole mixture"));
}

// Two files of documents; those of the second one are longer.
std::string padded_sources(const Folder& folder, const std::string& more = "") {
  std::string texts[2], sources;
  for (int i = 0; i < 40; ++i) {
    std::string tokens = std::to_string(i);
    for (int k = 0; k <= i % 5 + 4 * (i % 2); ++k) tokens += ", " + std::to_string(k);
    texts[i % 2] += fmt::format("{{\"tokens\": [{}]}}\n", tokens);
  }
  for (const int part : {0, 1}) {
    const auto path = folder.write(fmt::format("{}.jsonl", part), texts[part]).string();
    sources += fmt::format(R"({}{{"name": "jsonl", "path": "{}"{}}})", part ? ", " : "", path,
                           part ? more : "");
  }
  return fmt::format("[{}]", sources);
}

TEST(DataService, BatchesOfAMixtureArePaddedAsTheWorkerWouldPadThem) {
  const Folder folder;
  DataOptions options;
  options.name = "mixture";
  options.sources = padded_sources(folder);
  options.stages = "bucket(window=2, batch=5) | pad(multiple=2)";
  options.test_fraction = 0.2;
  const Dataset data = read_mixture(options);
  EXPECT_EQ(facts_of_parts(data)[0].longest, 10);
  const Sources own = make_sources("mixture", data);
  SampleServer server(parts_to_serve(data), {.token = kSecret, .threads = 2});
  DataOptions asking = options;
  asking.service = asks(address_of(server)).service;
  const Sources other = make_sources("mixture", read_mixture(asking));
  LoaderOptions loading{.batch = 5, .seed = 3, .threads = 0};
  loading.shuffle.mixture = data.mixture;
  loading.shuffle.by_length = data.by_length;
  for (const int world_size : {1, 2}) {
    Loader one(own.train, loading, world_size - 1, world_size);
    Loader two(other.train, loading, world_size - 1, world_size);
    for (int64_t step = 0; step < 2 * one.batches_per_epoch(); ++step) {
      const Batch here = one.next(), there = two.next();
      EXPECT_TRUE(at::equal(here.data, there.data));
      EXPECT_TRUE(at::equal(here.target, there.target));
      EXPECT_TRUE(at::equal(here.more.at("lengths"), there.more.at("lengths")));
    }
  }
  const Draws all({0, 1, own.test->size() - 1});  // Nobody says how long the longest one is.
  EXPECT_TRUE(at::equal(own.test->get_batch(all).data, other.test->get_batch(all).data));
  EXPECT_EQ(other.train->served()->made_here, 0);
  EXPECT_GT(other.train->served()->served, 50);
  EXPECT_EQ(other.test->served()->served, 3);

  DataOptions wider = options;
  wider.stages = "bucket(window=2, batch=5) | pad(multiple=4)";
  wider.service = asking.service;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { make_sources("mixture", read_mixture(wider)); }),
              HasSubstr("the padding"));
}

}  // namespace service_mixture_tests
}  // namespace trireme::data
