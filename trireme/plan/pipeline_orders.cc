#include <trireme/plan/pipeline_orders.h>

#include <algorithm>
#include <array>

namespace trireme::plan {
namespace {

// Forward for `ahead` micro-batches. Then for each micro-batch the gradient of its input, that of
// the weights for the micro-batch `delay` before it, and one more forward.
PipelineOrder split_order(const PipelineFacts& facts, int stage, int ahead, int delay) {
  const int last = facts.microbatches;
  PipelineOrder order;
  const auto add = [&](PipelineTask task, int microbatch) {
    if (microbatch >= 0 && microbatch < last) order.push_back({task, microbatch, stage});
  };
  for (int m = 0; m < ahead; ++m) add(PipelineTask::forward, m);
  for (int m = 0; m < last + delay; ++m) {
    add(PipelineTask::input_gradient, m);
    add(PipelineTask::weight_gradient, m - delay);
    add(PipelineTask::forward, m + ahead);
  }
  return order;
}

// The parts and micro-batches of a stage, in the order in which the interleaved schedule takes
// them: group by group, and in a group part by part. `all` is a multiple of the stages.
std::vector<std::pair<int, int>> grouped(const PipelineFacts& facts, int stage, int all,
                                         bool backward) {
  std::vector<std::pair<int, int>> order;
  for (int group = 0; group < all; group += facts.stages) {
    for (int chunk = 0; chunk < facts.chunks; ++chunk) {
      const int part = (backward ? facts.chunks - 1 - chunk : chunk) * facts.stages + stage;
      for (int m = group; m < group + facts.stages; ++m) order.emplace_back(part, m);
    }
  }
  return order;
}

}  // namespace

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

PipelineOrder interleaved_order(const PipelineFacts& facts, int stage) {
  const int all = (facts.microbatches + facts.stages - 1) / facts.stages * facts.stages;
  const int missing = all - facts.microbatches;
  PipelineOrder order;
  const auto add = [&](PipelineTask task, const std::pair<int, int>& place) {
    const auto& [part, microbatch] = place;
    if (microbatch >= missing) order.push_back({task, microbatch - missing, part});
  };
  const auto forward = grouped(facts, stage, all, false);
  const auto backward = grouped(facts, stage, all, true);
  const auto steps = forward.size();
  // The forwards before the first backward: those of the parts before the last one, and two for
  // each stage that follows.
  const auto ahead = std::min(steps, static_cast<size_t>(2 * (facts.stages - 1 - stage) + 1 +
                                                         (facts.chunks - 1) * facts.stages));
  for (size_t i = 0; i < ahead; ++i) add(PipelineTask::forward, forward[i]);
  for (size_t i = 0; i < steps; ++i) {
    add(PipelineTask::backward, backward[i]);
    if (i + ahead < steps) add(PipelineTask::forward, forward[i + ahead]);
  }
  return order;
}

PipelineOrder zero_bubble_1_order(const PipelineFacts& facts, int stage) {
  return split_order(facts, stage, facts.stages - stage, stage);
}

PipelineOrder zero_bubble_2_order(const PipelineFacts& facts, int stage) {
  return split_order(facts, stage, 2 * (facts.stages - stage) - 1, 2 * stage);
}

PipelineOrder zero_bubble_v_order(const PipelineFacts& facts, int stage) {
  using enum PipelineTask;
  const int down = stage, up = 2 * facts.stages - 1 - stage;  // The two parts of the stage.
  const int after = facts.stages - stage, all = facts.microbatches;
  // Each phase repeats its steps; a step is the next micro-batch of that task and part, and is
  // left out when there is none.
  struct Phase {
    int times;
    std::vector<std::pair<PipelineTask, int>> steps;
  };
  const std::array phases = {
      Phase{2 * after - 1, {{forward, down}}},
      Phase{stage, {{forward, up}, {forward, down}}},
      Phase{after, {{forward, up}, {input_gradient, up}, {weight_gradient, up}}},
      Phase{all - facts.stages,
            {{forward, down},
             {input_gradient, down},
             {weight_gradient, down},
             {forward, up},
             {input_gradient, up},
             {weight_gradient, up}}},
      Phase{stage, {{input_gradient, down}, {input_gradient, up}}},
      Phase{after, {{input_gradient, down}, {weight_gradient, down}}},
      Phase{all, {{weight_gradient, up}}},
      Phase{all, {{weight_gradient, down}}},
  };
  std::array<std::array<int, 4>, 2> next{};  // [up or down][task]
  PipelineOrder order;
  for (const Phase& phase : phases) {
    for (int i = 0; i < phase.times; ++i) {
      for (const auto& [task, part] : phase.steps) {
        int& microbatch = next[part == up][static_cast<size_t>(task)];
        if (microbatch < all) order.push_back({task, microbatch++, part});
      }
    }
  }
  return order;
}

}  // namespace trireme::plan
