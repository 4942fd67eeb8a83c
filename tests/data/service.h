// A server of samples and its clients in one process.
#pragma once
#include <trireme/data/pipeline/pipeline_source.h>
#include <trireme/data/service/hooks.h>
#include <trireme/data/service/sample_server.h>
#include <trireme/data/service/sample_service.h>
#include <memory>
#include <string>
#include <utility>

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

}  // namespace trireme::data
