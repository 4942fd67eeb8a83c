// Packs and padded batches from a data service: the batches of a run that makes them itself.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/data/kinds/record_set.h>
#include <trireme/data/loader.h>
#include <trireme/data/pipeline/record_pipelines.h>
#include <trireme/data/service/served_parts.h>
#include <trireme/data/service/wire.h>

#include "../base/expect_error.h"
#include "data_files.h"
#include "service.h"

namespace trireme::data {
namespace service_lengths_tests {

using testing::HasSubstr;

// Documents of tokens, or of numbers with a class, in JSON lines.
class Documents {
 public:
  explicit Documents(bool have_labels) {
    std::string lines;
    for (int i = 0; i < 60; ++i) {
      std::string list;
      const int length = 2 + (i * 7) % 23;
      for (int k = 0; k < length; ++k)
        list += (k > 0 ? ", " : "") + std::to_string((i * 31 + k * 5) % 97);
      lines += have_labels
                   ? R"({"values": [)" + list + R"(], "label": )" + std::to_string(i % 3) + "}\n"
                   : R"({"tokens": [)" + list + "]}\n";
    }
    folder_.write("documents.jsonl", lines);
  }
  DataOptions options(const std::string& stages) const {
    DataOptions options;
    options.name = "jsonl";
    options.path = (folder_.path() / "documents.jsonl").string();
    options.stages = stages;
    options.test_fraction = 0.25;
    return options;
  }

 private:
  const Folder folder_;
};

void expect_equal(const Batch& one, const Batch& other) {
  EXPECT_TRUE(at::equal(one.data, other.data));
  EXPECT_TRUE(at::equal(one.target, other.target));
  EXPECT_EQ(one.global_targets, other.global_targets);
  ASSERT_EQ(one.more.size(), other.more.size());
  for (const auto& [name, tensor] : one.more)
    EXPECT_TRUE(at::equal(tensor, other.more.at(name))) << name;
}

// Loads an epoch of training batches, on one rank and on two, and test batches.
void expect_same_with_a_service(const DataOptions& options) {
  SCOPED_TRACE(options.stages);
  const Dataset data = read_record_set(options);
  SampleServer server(parts_to_serve(data), {.token = kSecret, .threads = 2});
  const DataOptions asking = asks(server.endpoint().describe());
  const Sources other = served_sources(data, asking);
  const RecordPipelines own = record_pipelines(data);
  ASSERT_EQ(other.train->size(), own.train->size());
  for (int ranks = 1; ranks <= 2; ++ranks)
    for (int rank = 0; rank < ranks; ++rank) {
      LoaderOptions loading{.batch = 7, .seed = 3, .threads = 0};
      if (data.by_length) {
        auto of_run = std::make_shared<plan::LengthBatches>(*data.by_length);
        of_run->batch = loading.batch;
        loading.shuffle.by_length = of_run;
      }
      Loader one(own.train, loading, rank, ranks), two(other.train, loading, rank, ranks);
      for (int64_t step = 0; step < own.train->size() / 7 + 2; ++step)
        expect_equal(one.next(), two.next());
    }
  // An evaluation does not say how long the longest sample is.
  for (int64_t first = 0; first + 4 <= own.test->size(); first += 4) {
    const Draws draws({first, first + 1, first + 2, first + 3});
    std::vector<size_t> left_out;
    const Example one = own.test->get_kept(draws, left_out),
                  two = other.test->get_kept(draws, left_out);
    EXPECT_TRUE(at::equal(one.data, two.data));
    EXPECT_TRUE(at::equal(one.target, two.target));
  }
  EXPECT_EQ(other.train->served()->made_here, 0);
  EXPECT_EQ(other.test->served()->made_here, 0);
  EXPECT_GT(other.train->served()->served, own.train->size());
}

TEST(DataService, PacksAreThoseThatTheWorkerWouldMake) {
  const Documents documents(false);
  for (const char* const stages : {"pack(24)", "take(30) | pack(16, window=8, long=split)",
                                   "pack(32) | repeat(3) | take(20)"})
    expect_same_with_a_service(documents.options(stages));
}

TEST(DataService, PaddedBatchesAreThoseThatTheWorkerWouldMake) {
  const Documents tokens(false), numbers(true);
  for (const char* const stages :
       {"pad", "pad(multiple=8, value=5)", "bucket(window=3) | pad", "repeat(2) | pad"}) {
    expect_same_with_a_service(tokens.options(stages));
    expect_same_with_a_service(numbers.options(stages));
  }
}

TEST(DataService, SamplesAreSharedByBatchesOfOneLength) {
  const Documents numbers(true);
  const Dataset data = read_record_set(numbers.options("pad"));
  SampleServer server(parts_to_serve(data), {.token = kSecret, .threads = 1});
  const Sources sources = served_sources(data, asks(server.endpoint().describe()));
  const int64_t before = server.use().made;
  Draws draws({1, 2, 3});
  const int64_t own = longest_of(*sources.train, draws);
  ASSERT_LT(own, 24);
  for (const int64_t longest : {int64_t{24}, int64_t{24}, own}) {
    draws.longest = longest;
    EXPECT_EQ(sources.train->get_batch(draws).data.size(1), longest);
  }
  EXPECT_EQ(server.use().made - before, 6);
}

TEST(DataService, ALengthOutsideTheDataIsRefusedBeforeAnythingIsMade) {
  const Documents numbers(true);
  const Dataset data = read_record_set(numbers.options("pad"));
  SampleServer server(parts_to_serve(data), {.token = kSecret, .threads = 1});
  const Sources sources = served_sources(data, asks(server.endpoint().describe()));
  const PartFacts facts = facts_of_parts(data)[0];
  EXPECT_EQ(facts.longest, 24);
  const auto line = connect_to(server.endpoint(), kSecret, Deadline::after(Milliseconds(20'000)),
                               Milliseconds(10'000));
  for (const int64_t longest : {int64_t{25}, int64_t{-1}, int64_t{1} << 60}) {
    Draws draws({1, 2});
    draws.longest = longest;
    const int64_t before = server.use().asked;
    EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                           [&] {
                             line.client->call({.header = request_of(facts, draws)}, net::Places{},
                                               Deadline::after(Milliseconds(20'000)));
                           }),
                HasSubstr("the limit is 24"));
    EXPECT_EQ(server.use().asked, before);
  }
}

TEST(DataService, PaddedSamplesOfUnknownLengthsAreRefused) {
  const Documents numbers(true);
  EXPECT_THAT(
      message_of(ErrorCode::unsupported,
                 [&] { facts_of_parts(read_record_set(numbers.options("map(one) | pad"))); }),
      HasSubstr("not known from the index"));
}

}  // namespace service_lengths_tests
}  // namespace trireme::data
