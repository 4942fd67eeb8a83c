#include <trireme/plan/pipeline_orders.h>

#include <algorithm>

namespace trireme::plan {

PipelineOrder naive_order(const PipelineFacts& facts, int stage) {
  PipelineOrder order;
  for (int m = 0; m < facts.microbatches; ++m) {
    order.push_back({PipelineTask::forward, m, stage});
    order.push_back({PipelineTask::backward, m, stage});
  }
  return order;
}

PipelineOrder gpipe_order(const PipelineFacts& facts, int stage) {
  PipelineOrder order;
  for (int m = 0; m < facts.microbatches; ++m) order.push_back({PipelineTask::forward, m, stage});
  for (int m = facts.microbatches - 1; m >= 0; --m)
    order.push_back({PipelineTask::backward, m, stage});
  return order;
}

PipelineOrder one_forward_one_backward_order(const PipelineFacts& facts, int stage) {
  const int ahead = std::min(facts.microbatches, facts.stages - stage);
  PipelineOrder order;
  for (int m = 0; m < ahead; ++m) order.push_back({PipelineTask::forward, m, stage});
  for (int m = 0; m < facts.microbatches; ++m) {
    order.push_back({PipelineTask::backward, m, stage});
    if (m + ahead < facts.microbatches) order.push_back({PipelineTask::forward, m + ahead, stage});
  }
  return order;
}

}  // namespace trireme::plan
