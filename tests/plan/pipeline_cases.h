// Pipelines that the tests of pipeline plans share.
#pragma once
#include <trireme/plan/pipeline_plan.h>
#include <functional>

namespace trireme::plan {

// Visits every schedule with 1 to 6 stages, 1 to 10 micro-batches and the chunks it can have.
inline void for_each_pipeline(const std::function<void(const PipelinePlan&)>& visit) {
  for (const std::string& schedule : pipeline_schedules()) {
    const int most_chunks = schedule == "interleaved" ? 3 : schedule == "zbv" ? 2 : 1;
    for (int stages = 1; stages <= 6; ++stages)
      for (int microbatches = 1; microbatches <= 10; ++microbatches)
        for (int chunks = std::min(2, most_chunks); chunks <= most_chunks; ++chunks)
          visit(plan_pipeline({schedule, stages, microbatches, chunks}));
  }
}

inline std::string name_of(const PipelineFacts& facts) {
  return facts.schedule + " " + std::to_string(facts.stages) + " stages " +
         std::to_string(facts.microbatches) + " micro-batches " + std::to_string(facts.chunks) +
         " chunks";
}

}  // namespace trireme::plan
