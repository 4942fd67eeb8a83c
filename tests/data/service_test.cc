#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/data/loader.h>
#include <trireme/data/pipeline/mixed_source.h>

#include "../base/expect_error.h"
#include "service.h"

namespace trireme::data {
namespace service_tests {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(DataService, ServedSamplesAreThoseThatTheWorkerWouldMake) {
  const auto plain = made_images(kStages, 40);
  const auto server = serve(made_images(kStages, 40), kStages);
  const auto source = served(asks(address_of(*server)), kStages, made_images(kStages, 40));
  expect_same_batches(*source, *plain);
  EXPECT_EQ(source->served()->served, 24);
  EXPECT_EQ(source->served()->made_here, 0);
  EXPECT_EQ(source->stage_use().back().name, "service");
  EXPECT_EQ(source->stage_use().back().bytes, 24 * (3 * 12 * 12 * 4 + 8));
  EXPECT_FALSE(plain->served());
}

TEST(DataService, TheServerTellsTheWorkOfItsStages) {
  const auto server = serve(made_images(kStages, 40), kStages);
  const auto source = served(asks(address_of(*server)), kStages, made_images(kStages, 40));
  for (int64_t i = 0; i < 100; ++i)
    source->get_batch(Draws({i % 40, (i + 9) % 40, (i + 18) % 40, (i + 27) % 40}, i, 9));
  const std::vector<StageUse> own = made_images(kStages, 40)->stage_use();
  const std::vector<StageUse> stages = source->stage_use();
  ASSERT_EQ(stages.size(), 2 * own.size() + 1);
  for (size_t i = 0; i < own.size(); ++i) {
    const StageUse& there = stages[own.size() + i];
    EXPECT_EQ(there.name, own[i].name);
    EXPECT_TRUE(there.in_service);
    EXPECT_GT(there.samples, 0) << there.name;
    EXPECT_GT(there.seconds, 0) << there.name;
    EXPECT_FALSE(stages[i].in_service);
  }
  EXPECT_EQ(source->served()->threads, 2);
  const ServiceUse use = server->use();
  ASSERT_EQ(use.stages.size(), 1U);
  EXPECT_EQ(use.stages[0].first, "train");
  EXPECT_GE(use.stages[0].second[0].samples, stages[own.size()].samples);
  EXPECT_EQ(to_json(use).at("stages").at("train").size(), own.size());
}

TEST(DataService, TwoJobsInStepShareTheWork) {
  const auto server = serve(made_images(kStages, 40), kStages);
  std::vector<std::jthread> jobs;
  for (int job = 0; job < 2; ++job)
    jobs.emplace_back([&] {
      const auto source = served(asks(address_of(*server)), kStages, made_images(kStages, 40));
      for (int64_t i = 0; i < 20; ++i) source->get_batch(Draws({2 * i, 2 * i + 1}, 1, 3));
    });
  jobs.clear();
  wait_for([&] { return server->use().served == 86; });
  EXPECT_EQ(server->use().asked, 86);  // 40 samples of each job, and three that prove it.
  EXPECT_EQ(server->use().made, 43);
}

TEST(DataService, TheWorkerMixesTheSamplesOfABatch) {
  const std::string mixed = std::string(kStages) + " | mixup(0.4) | cutmix";
  const auto server = serve(made_images(kStages, 40), kStages);
  const auto options = asks(address_of(*server));
  PipelineOptions wrapped;
  wrapped.wrap = [&](std::shared_ptr<const Source> samples) {
    return served(options, kStages, std::move(samples));
  };
  const auto source = made_images(mixed, 40, wrapped);
  EXPECT_TRUE(source->mixes_batches());
  expect_same_batches(*source, *made_images(mixed, 40));
  EXPECT_EQ(source->served()->made_here, 0);
}

TEST(DataService, TheWorkerMakesTheSamplesOfALostServer) {
  const auto plain = made_images(kStages, 40);
  auto server = serve(made_images(kStages, 40), kStages);
  const int port = server->endpoint().port;
  const auto source = served(asks(address_of(*server)), kStages, made_images(kStages, 40));
  expect_same_batches(*source, *plain, 2);
  server.reset();
  expect_same_batches(*source, *plain);
  EXPECT_EQ(source->served()->served, 8);
  EXPECT_EQ(source->served()->made_here, 24);
  server = serve(made_images(kStages, 40), kStages, port);
  wait_for([&] {
    source->get_batch({1});
    return source->served()->served > 8;
  });
  expect_same_batches(*source, *plain);
}

// Its get_kept() waits while the gate is closed.
class GatedSource : public Source {
 public:
  explicit GatedSource(std::shared_ptr<const Source> inner) : inner_(std::move(inner)) {}
  int64_t size() const override { return inner_->size(); }
  Example get(const Draw& draw) const override { return inner_->get(draw); }
  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override {
    while (closed) std::this_thread::sleep_for(Milliseconds(2));
    return inner_->get_kept(draws, left_out);
  }
  std::atomic<bool> closed{false};

 private:
  const std::shared_ptr<const Source> inner_;
};

TEST(DataService, TheWorkerMakesTheSamplesOfASlowServer) {
  const auto gated = std::make_shared<GatedSource>(made_images(kStages, 40));
  const auto server = serve(gated, kStages);
  const auto source = served(asks(address_of(*server), 1500), kStages, made_images(kStages, 40));
  gated->closed = true;
  expect_same_batches(*source, *made_images(kStages, 40), 4);
  EXPECT_EQ(source->served()->made_here, 16);
  gated->closed = false;
  wait_for([&] {
    source->get_batch({1});
    return source->served()->served > 0;
  });
}

TEST(DataService, SeveralServersShareTheBatchesAndStandInForEachOther) {
  const auto plain = made_images(kStages, 40);
  auto one = serve(made_images(kStages, 40), kStages);
  auto two = serve(made_images(kStages, 40), kStages);
  const auto source =
      served(asks(address_of(*one) + "," + address_of(*two)), kStages, made_images(kStages, 40));
  expect_same_batches(*source, *plain, 12);
  EXPECT_GT(one->use().asked, 3);
  EXPECT_GT(two->use().asked, 3);
  one.reset();
  expect_same_batches(*source, *plain, 12);
  EXPECT_EQ(source->served()->made_here, 0);
}

TEST(DataService, AServerWithOtherSamplesIsRefused) {
  const auto server = serve(made_images(kStages, 40), kStages);
  const auto options = asks(address_of(*server));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { served(options, "flip", made_images("flip", 40)); }),
              AllOf(HasSubstr("the stages: \"flip\" here"), HasSubstr("random_crop(12)")));
  // The same facts, and another sample.
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { served(options, kStages, made_images("normalise(0.1)", 40)); }),
              HasSubstr("makes another sample of the same records"));
}

TEST(DataService, AnotherSecretIsRefused) {
  const auto server = serve(made_images(kStages, 40), kStages);
  const auto options = asks(address_of(*server));
  set_service_hooks({.token = [] { return std::string("another secret of 16 bytes"); }});
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { served(options, kStages, made_images(kStages, 40)); }),
              AllOf(HasSubstr("another secret"), HasSubstr("TRIREME_DATA_TOKEN")));
}

TEST(DataService, DamagedRecordsAreCountedInTheWorker) {
  const auto images = std::make_shared<MadeImages>(20, 4, 4);
  images->damaged = {3, 5};
  const auto make = [&] { return make_pipeline(images, {.bad_records = {.skip = true}}); };
  const auto server = serve(make(), "");
  const auto source = served(asks(address_of(*server)), "", make(), true);
  std::vector<size_t> left_out;
  for (int times = 0; times < 2; ++times)
    EXPECT_EQ(source->get_kept({2, 3, 4, 5}, left_out).data.size(0), 2);
  EXPECT_EQ(left_out, (std::vector<size_t>{1, 3, 1, 3}));
  EXPECT_EQ(source->bad_records(), (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(source->served()->served, 8);
  // Nothing is left of this batch, and the worker finds the form of its tensors.
  EXPECT_EQ(source->get_kept({3, 5}, left_out).data.size(0), 0);
}

// Notes the draws that it is asked for, and leaves samples out.
class NotingSource : public Source {
 public:
  explicit NotingSource(std::shared_ptr<const Source> inner) : inner_(std::move(inner)) {}
  int64_t size() const override { return inner_->size(); }
  Example get(const Draw& draw) const override { return inner_->get(draw); }
  bool leaves_out() const override { return true; }
  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override {
    noted.push_back(draws);
    return inner_->get_kept(draws, left_out);
  }
  mutable std::vector<Draws> noted;

 private:
  const std::shared_ptr<const Source> inner_;
};

TEST(DataService, TheWorkerLooksAtDamagedRecordsWithTheirOwnSeeds) {
  const auto images = std::make_shared<MadeImages>(20, 4, 4);
  images->damaged = {3, 5};
  const auto make = [&] { return make_pipeline(images, {.bad_records = {.skip = true}}); };
  const auto server = serve(make(), "");
  const auto noting = std::make_shared<NotingSource>(make());
  const auto source = served(asks(address_of(*server)), "", noting, true);
  noting->noted.clear();
  Draws draws({2, 3, 4, 5}, 1, 6);
  std::vector<size_t> left_out;
  source->get_kept(draws, left_out);
  draws.seeds = {20, 30, 40, 50};
  source->get_kept(draws, left_out);
  ASSERT_EQ(noting->noted.size(), 2U);
  for (const Draws& noted : noting->noted) EXPECT_THAT(noted.indices, ElementsAre(3, 5));
  EXPECT_EQ(noting->noted[0].at(1).seed, Draws({5}, 1, 6).at(0).seed);
  EXPECT_EQ(noting->noted[1].at(0).seed, 30U);
  EXPECT_EQ(noting->noted[1].at(1).seed, 50U);
}

TEST(DataService, ARecordThatStopsTheRunStopsItWithAService) {
  const auto images = std::make_shared<MadeImages>(20, 4, 4);
  images->damaged = {3};
  const auto server = serve(make_pipeline(images, {}), "");
  const auto source = served(asks(address_of(*server)), "", make_pipeline(images, {}));
  EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { source->get_batch({2, 3}); }),
              HasSubstr("made.bin, record 3"));
}

TEST(DataService, RequestsAreCheckedBeforeAnythingIsMade) {
  const auto server = serve(made_images("", 20), "");
  net::ChannelOptions channel;
  channel.service = kServiceName;
  net::RequestClient client(server->endpoint(), kSecret, Deadline::after(Milliseconds(20'000)),
                            channel);
  const auto refused = [&](const Json& request, const std::string& part) {
    const auto message = message_of(ErrorCode::invalid_argument, [&] {
      client.call({.header = request.dump()}, net::Places{},
                  Deadline::after(Milliseconds(20'000)));
    });
    EXPECT_THAT(message, HasSubstr(part));
  };
  const Json good = {
      {"op", "get"}, {"part", "digest of "}, {"epoch", 0}, {"seed", 1}, {"indices", {0}}};
  const auto with = [&](const char* key, const Json& value) {
    Json changed = good;
    changed[key] = value;
    return changed;
  };
  refused(with("indices", {20}), "sample 20 is outside 0..19");
  refused(with("indices", {-1}), "sample -1 is outside");
  refused(with("indices", Json::array()), "a request for 0 samples");
  refused(with("indices", std::vector<int>(65537, 0)), "a request for 65537 samples");
  refused(with("indices", "all"), "none of the data service");
  refused(with("epoch", "x"), "none of the data service");
  refused(with("part", "of another"), "other data");
  refused(with("seeds", {1, 2}), "2 seeds for 1 samples");
  refused(Json{{"op", "get"}}, "none of the data service");
  refused(Json("text"), "none of the data service");
  EXPECT_EQ(server->use().asked, 0);
  EXPECT_FALSE(client.is_lost());
}

}  // namespace service_tests
}  // namespace trireme::data
