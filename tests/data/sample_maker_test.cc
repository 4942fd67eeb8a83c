#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/data/pipeline/pipeline_source.h>
#include <trireme/data/service/sample_maker.h>
#include <trireme/data/service/wire.h>
#include <future>
#include <numeric>

#include "../base/expect_error.h"
#include "made_records.h"

namespace trireme::data {
namespace sample_maker_tests {

std::shared_ptr<const Source> noisy_images(int64_t size) {
  return make_pipeline(
      std::make_shared<MadeImages>(size, 8, 8),
      {.stages = parse_stages("data.stages", "random_crop(6) | flip"), .classes = 10});
}

// Waits for the samples of one request.
SampleMaker::Samples ask(SampleMaker& maker, size_t part, const Draws& draws) {
  auto result = std::make_shared<std::promise<SampleMaker::Samples>>();
  auto future = result->get_future();
  maker.make(part, draws,
             {.done = [result](SampleMaker::Samples samples) { result->set_value(samples); },
              .failed = [result](std::exception_ptr error) { result->set_exception(error); }});
  if (future.wait_for(std::chrono::seconds(60)) != std::future_status::ready)
    throw std::runtime_error("no sample within a minute");
  return future.get();
}

TEST(SampleMaker, GivesTheSamplesOfItsSourceAndMakesEachOnce) {
  const auto source = noisy_images(40);
  SampleMaker maker({{source, false}}, 3, 1 << 20);
  const Draws draws({7, 3, 3, 39, 0, 11, 12, 13, 14, 15, 16, 17}, 2, 5);
  const Example wanted = source->get_batch(draws);
  for (int times = 0; times < 3; ++times) {
    const auto samples = ask(maker, 0, draws);
    ASSERT_EQ(samples.size(), draws.indices.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_TRUE(samples[i]->row.data[0].equal(wanted.data[static_cast<int64_t>(i)]));
      EXPECT_TRUE(samples[i]->row.target[0].equal(wanted.target[static_cast<int64_t>(i)]));
    }
  }
  EXPECT_EQ(maker.use().asked, 36);
  EXPECT_EQ(maker.use().made, 11);  // Sample 3 was asked twice.
  // The draws may have seeds of their own.
  Draws own({7, 3}, 2, 0);
  own.seeds = {draws.at(0).seed, draws.at(1).seed};
  EXPECT_TRUE(ask(maker, 0, own)[1]->row.data[0].equal(wanted.data[1]));
  EXPECT_EQ(maker.use().made, 11);
  ask(maker, 0, Draws({7}, 3, 5));
  ask(maker, 0, Draws({7}, 2, 6));
  EXPECT_EQ(maker.use().made, 13);
}

TEST(SampleMaker, ASampleWithoutRandomStagesIsTheSameInEachEpoch) {
  const auto source = noisy_images(10);
  SampleMaker maker({{source, false}, {source, true}}, 1, 1 << 20);
  ask(maker, 1, Draws({4}, 1, 5));
  ask(maker, 1, Draws({4}, 2, 6));
  EXPECT_EQ(maker.use().made, 1);
  ask(maker, 0, Draws({4}, 0, 0));  // It is in another part.
  EXPECT_EQ(maker.use().made, 2);
}

TEST(SampleMaker, KeepsWhatWasUsedLast) {
  const auto source = noisy_images(10);
  SampleMaker one({{source, false}}, 1, 1 << 20);
  ask(one, 0, Draws({0}));
  const int64_t bytes = one.use().kept_bytes;
  EXPECT_GT(bytes, int64_t{3} * 6 * 6 * 4 + 8);
  SampleMaker maker({{source, false}}, 1, 2 * bytes);
  for (const int64_t index : {0, 1, 0, 2}) ask(maker, 0, Draws({index}));
  EXPECT_EQ(maker.use().kept, 2);
  EXPECT_LE(maker.use().kept_bytes, 2 * bytes);
  EXPECT_EQ(maker.use().made, 3);
  ask(maker, 0, Draws({0}));
  EXPECT_EQ(maker.use().made, 3);
  ask(maker, 0, Draws({1}));
  EXPECT_EQ(maker.use().made, 4);
}

std::vector<int64_t> first_numbers(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

TEST(SampleMaker, TinySamplesCountWithAllThatTheyTake) {
  // Samples of 11 bytes in tensors that have far larger heads.
  const auto source = make_pipeline(std::make_shared<MadeImages>(20'000, 1, 1), {});
  constexpr int64_t kLimit = 1 << 20;
  SampleMaker maker({{source, false}}, 1, kLimit);
  const auto samples = ask(maker, 0, Draws(first_numbers(20'000)));
  const auto heads = static_cast<int64_t>(2 * sizeof(c10::TensorImpl));
  EXPECT_GT(maker.use().kept, 100);
  EXPECT_LT(maker.use().kept, kLimit / heads);
  // No row holds the memory of others.
  for (const auto& sample : samples)
    for (const at::Tensor* const tensor : {&sample->row.data, &sample->row.target})
      ASSERT_EQ(tensor->storage().nbytes(), tensor->nbytes());
}

TEST(SampleMaker, SamplesThatAreLeftOutCountToo) {
  const auto images = std::make_shared<MadeImages>(2000, 1, 1);
  for (const int64_t index : first_numbers(1999)) images->damaged.insert(index + 1);
  SampleMaker maker(
      {{make_pipeline(images, {.bad_records = {.skip = true, .most = 5000}}), false}}, 1, 50'000);
  ask(maker, 0, Draws(first_numbers(2000)));
  EXPECT_LT(maker.use().kept, 500);
}

TEST(SampleMaker, WithoutMemoryItMakesEachSampleThatIsAsked) {
  SampleMaker maker({{noisy_images(10), false}}, 2, 0);
  for (int times = 0; times < 3; ++times) EXPECT_EQ(ask(maker, 0, Draws({1, 2})).size(), 2U);
  EXPECT_EQ(maker.use().made, 6);
  EXPECT_EQ(maker.use().kept, 0);
}

TEST(SampleMaker, AnErrorReachesItsRequestAndIsNotKept) {
  const auto images = std::make_shared<MadeImages>(10, 4, 4);
  images->damaged.insert(3);
  SampleMaker maker({{make_pipeline(images, {}), false}}, 1, 1 << 20);
  EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { ask(maker, 0, Draws({3})); }),
              testing::HasSubstr("record 3"));
  images->damaged.clear();
  EXPECT_EQ(ask(maker, 0, Draws({3})).size(), 1U);
}

TEST(SampleMaker, DropsSamplesThatNobodyWantsAnyMore) {
  const auto source = noisy_images(10);
  std::promise<void> begun, goes_on;
  SampleMaker maker({{source, false}}, 1, 1 << 20);
  // The only thread waits in the callback of the first request.
  maker.make(0, Draws({0}),
             {.done =
                  [&](const SampleMaker::Samples&) {
                    begun.set_value();
                    goes_on.get_future().wait();
                  },
              .failed = [](const std::exception_ptr&) {}});
  begun.get_future().wait();
  maker.make(0, Draws({1, 2, 3}),
             {.done = [](const SampleMaker::Samples&) { ADD_FAILURE() << "nobody waits"; },
              .failed = [](const std::exception_ptr&) {},
              .cancelled = [] { return true; }});
  goes_on.set_value();
  ask(maker, 0, Draws({5}));
  EXPECT_EQ(maker.use().made, 2);
}

TEST(SampleMaker, ManyThreadsGetTheSameSamples) {
  const auto source = noisy_images(64);
  SampleMaker maker({{source, false}}, 4, 20'000);
  std::vector<std::jthread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 60; ++i) {
        const Draws draws({i % 64, (i + 1) % 64, (i * 7 + t) % 64}, i % 2, 1);
        const Example wanted = source->get_batch(draws);
        const auto samples = ask(maker, 0, draws);
        for (size_t k = 0; k < 3; ++k)
          wrong += !samples[k]->row.data[0].equal(wanted.data[static_cast<int64_t>(k)]);
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

// The reply as a client gets it.
ReceivedSamples through_the_wire(const SamplesReply& reply, size_t asked) {
  net::Head head{.header = reply.message.header};
  for (const auto& tensor : reply.message.tensors) head.tensors.push_back(tensor.note);
  net::Places places;
  ReceivedSamples received = receive_into(head, asked, places, "the server");
  for (size_t i = 0; i < places.size(); ++i)
    std::memcpy(places[i].data(), reply.message.tensors[i].data, places[i].size());
  return received;
}

TEST(ServiceWire, ABatchArrivesAsItWasMade) {
  for (const int64_t side : {4, 64}) {  // Rows that are gathered, and rows as pieces.
    const auto source = make_pipeline(std::make_shared<MadeImages>(20, side, side), {});
    SampleMaker maker({{source, false}}, 1, 1 << 24);
    const Draws draws({3, 9, 0, 3});
    const auto received = through_the_wire(reply_of(ask(maker, 0, draws)), 4);
    const Example wanted = source->get_batch(draws);
    EXPECT_TRUE(received.rows.data.equal(wanted.data));
    EXPECT_TRUE(received.rows.target.equal(wanted.target));
    EXPECT_TRUE(received.left_out.empty());
  }
}

TEST(ServiceWire, SamplesThatAreLeftOutAreNamed) {
  const auto images = std::make_shared<MadeImages>(10, 4, 4);
  images->damaged = {1, 4};
  const auto source = make_pipeline(images, {.bad_records = {.skip = true}});
  SampleMaker maker({{source, false}}, 1, 1 << 24);
  const auto received = through_the_wire(reply_of(ask(maker, 0, Draws({0, 1, 2, 4}))), 4);
  EXPECT_EQ(received.left_out, (std::vector<size_t>{1, 3}));
  EXPECT_TRUE(received.rows.data.equal(source->get_batch({0, 2}).data));
}

TEST(ServiceWire, AHeadThatIsNoReplyIsRefusedBeforeMemoryIsTaken) {
  const auto refuses = [](const std::string& header, std::vector<net::TensorNote> notes,
                          const std::string& part) {
    const auto message = message_of(ErrorCode::corrupt, [&] {
      net::Places places;
      receive_into({.header = header, .tensors = notes}, 2, places, "the server");
    });
    EXPECT_THAT(message, testing::HasSubstr("the server gave a reply that " + part));
  };
  refuses("no json", {}, "cannot be read");
  refuses(R"({"rows": 1, "left_out": [], "tensors": []})", {}, "has 1 of 2 samples");
  refuses(R"({"rows": 1, "left_out": [5], "tensors": []})", {},
          "leaves out samples that were not asked for");
  refuses(R"({"rows": 2, "left_out": [], "tensors": []})", {}, "has no data");
  const auto one = [](const std::string& shape, int pieces) {
    return R"({"rows": 2, "left_out": [], "tensors": [{"name": "data", "dtype": "Float",
               "shape": )" +
           shape + R"(, "pieces": )" + std::to_string(pieces) + "}]}";
  };
  refuses(one("[4000000000, 4000000000]", 1), {{.bytes = 8}}, "has a wrong shape");
  refuses(one("[-1]", 1), {{.bytes = 8}}, "has a wrong shape");
  // The sizes beside one of 0 are checked too.
  refuses(one("[0, 4611686018427387904, 4611686018427387904]", 1), {{.bytes = 0}},
          "has a wrong shape");
  refuses(one("[1e30]", 1), {{.bytes = 8}}, "has number instead of a whole number");
  refuses(one("[18446744073709551615]", 1), {{.bytes = 8}}, "has a wrong shape");
  refuses(one("{}", 1), {{.bytes = 8}}, "cannot be read");
  refuses(one("[2]", -1), {{.bytes = 8}}, "lacks pieces");
  refuses(R"({"rows": 2, "left_out": [], "tensors": [{"name": "data", "dtype": "Thing",
              "shape": [], "pieces": 1}]})",
          {{.bytes = 8}}, "has a tensor of the type \"Thing\"");
  refuses(R"({"rows": -9223372036854775808, "left_out": [], "tensors": []})", {}, "has -9223372");
  const std::string data = R"({"name": "data", "dtype": "Byte", "shape": [], "pieces": 1})";
  refuses(R"({"rows": 2, "left_out": [], "tensors": [)" + data + "," + data + "]}",
          {{.bytes = 2}, {.bytes = 2}}, "names the tensor \"data\" twice");
  refuses(one("[2]", 2), {{.bytes = 8}}, "lacks pieces");
  refuses(one("[2]", 1), {{.bytes = 24}}, "has too many bytes");
  refuses(one("[2]", 1), {{.bytes = 8}}, "has too few bytes");
  refuses(one("[2]", 1), {{.bytes = 16}, {.bytes = 1}}, "has more tensors");
}

}  // namespace sample_maker_tests
}  // namespace trireme::data
