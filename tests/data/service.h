// A server of samples and its clients in one process.
#pragma once
#include <gtest/gtest.h>
#include <trireme/data/pipeline/pipeline_source.h>
#include <trireme/data/service/hooks.h>
#include <trireme/data/service/sample_server.h>
#include <trireme/data/service/sample_service.h>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "made_records.h"

namespace trireme::data {

inline const std::string kSecret = "a secret of 16 bytes or more";

inline PartFacts facts_for(const std::string& stages, int64_t samples) {
  return {.name = "train",
          .samples = samples,
          .facts = {{"the stages", stages}},
          .digest = "digest of " + stages};
}

inline std::shared_ptr<const Source> made_images(const std::string& stages, int64_t samples,
                                                 const PipelineOptions& options = {}) {
  PipelineOptions all = options;
  all.stages = parse_stages("data.stages", stages);
  all.classes = 10;
  return make_pipeline(std::make_shared<MadeImages>(samples, 16, 16), all);
}

inline std::unique_ptr<SampleServer> serve(std::shared_ptr<const Source> source,
                                           const std::string& stages, int port = 0) {
  const int64_t samples = source->size();
  return std::make_unique<SampleServer>(
      std::vector<ServedPart>{{facts_for(stages, samples), std::move(source)}},
      SampleServerOptions{.listen = {"127.0.0.1", port}, .token = kSecret, .threads = 2});
}

inline DataOptions asks(const std::string& addresses, int timeout_ms = 20'000) {
  DataOptions options;
  options.service = addresses;
  options.service_timeout = Milliseconds(timeout_ms);
  set_service_hooks({.token = [] { return kSecret; }, .start_host = {}});
  return options;
}

inline std::string address_of(const SampleServer& server) { return server.endpoint().describe(); }

// A source that asks the servers of `options`.
inline std::shared_ptr<const Source> served(const DataOptions& options, const std::string& stages,
                                            std::shared_ptr<const Source> source,
                                            bool skips = false) {
  const auto service = std::make_shared<SampleService>(options);
  const PartFacts facts = facts_for(stages, source->size());
  service->add({facts, source});
  service->connect();
  return serve_source(service, facts, std::move(source), skips);
}

inline constexpr const char* kStages =
    "random_crop(12) | flip | colour_jitter(0.2) | normalise | erase(value=random)";

inline void expect_same_batches(const Source& one, const Source& other, int64_t batches = 6) {
  for (int64_t i = 0; i < batches; ++i) {
    Draws draws({i, i + 7, 3, 2 * i}, i / 2, 9);
    draws.consumed = 4 * i;
    // As a source that asks under other numbers does.
    if (i % 2 == 1 && !one.mixes_batches()) draws.seeds = {7, 8, 9, static_cast<uint64_t>(i)};
    std::vector<size_t> left_out, left_out_too;
    const Example a = one.get_kept(draws, left_out), b = other.get_kept(draws, left_out_too);
    EXPECT_TRUE(a.data.equal(b.data));
    EXPECT_TRUE(a.target.equal(b.target));
    EXPECT_EQ(left_out, left_out_too);
  }
}

inline void wait_for(const std::function<bool()>& holds) {
  const Deadline deadline = Deadline::after(Milliseconds(60'000));
  while (!holds() && !deadline.expired()) std::this_thread::sleep_for(Milliseconds(5));
  ASSERT_TRUE(holds());
}

}  // namespace trireme::data
