#include <trireme/plan/pipeline_memory.h>

#include <algorithm>
#include <compare>
#include <map>
#include <set>
#include <utility>

namespace trireme::plan {
namespace {

Json saved_json(const SavedInBlock& saved) {
  return {{"values", saved.values},
          {"inner_bytes", saved.inner_bytes},
          {"still_bytes", saved.still_bytes}};
}

SavedInBlock saved_from(const Json& json) {
  return {json.at("values").get<std::vector<int>>(), json.at("inner_bytes").get<int64_t>(),
          json.at("still_bytes").get<int64_t>()};
}

bool contains(const std::vector<int>& values, int value) {
  return std::ranges::find(values, value) != values.end();
}

std::vector<int> without(const std::vector<int>& values, const std::vector<int>& others) {
  std::vector<int> rest;
  for (const int value : values)
    if (!contains(others, value)) rest.push_back(value);
  return rest;
}

MemoryDecision decision_for(const std::vector<MemoryDecision>& decisions, size_t block) {
  return decisions.empty() ? MemoryDecision::keep : decisions[block];
}

// The activations that a block holds from forward to backward under a decision.
SavedInBlock held_by(const MeasuredChain& chain, size_t block, MemoryDecision decision) {
  const MeasuredBlock& measured = chain.blocks[block];
  switch (decision) {
    case MemoryDecision::recompute: return {measured.inputs, 0, 0};
    case MemoryDecision::swap: return chain.not_moved(measured.saved);
    case MemoryDecision::compress: {
      SavedInBlock held = chain.not_moved(measured.saved);
      held.inner_bytes += (chain.moved_bytes(measured.saved) + 1) / 2;
      return held;
    }
    case MemoryDecision::keep: break;
  }
  return measured.saved;
}

// The memory of one stage while it runs its steps.
class StageOnPaper {
 public:
  StageOnPaper(const PipelinePlan& plan, const Partition& cut, const MeasuredChain& chain,
               const std::vector<MemoryDecision>& decisions)
      : plan_(plan), cut_(cut), chain_(chain), decisions_(decisions) {}

  int64_t peak_of(int stage) {
    for (const PipelineStep& step : plan_.steps[static_cast<size_t>(stage)]) {
      switch (step.task) {
        case PipelineTask::forward: forward(step); break;
        case PipelineTask::backward: backward(step); break;
        case PipelineTask::input_gradient: first_half(step); break;
        case PipelineTask::weight_gradient: second_half(step); break;
      }
    }
    return peak_;
  }

 private:
  // In place of a block: the inputs and outputs of the part, the tensors of the loss, and
  // gradients that have just come.
  static constexpr int kEnds = -1, kLoss = -2, kArriving = -3;
  struct Holder {
    int microbatch = 0, part = 0, block = kEnds;
    auto operator<=>(const Holder&) const = default;
  };

  void hold(const Holder& holder, const std::vector<int>& values, int64_t inner_bytes = 0) {
    SavedInBlock& held = held_[holder];
    for (const int value : values) {
      held.values.push_back(value);
      if (users_[{holder.microbatch, value}]++ == 0)
        now_ += chain_.value_bytes[static_cast<size_t>(value)];
    }
    held.inner_bytes += inner_bytes;
    now_ += inner_bytes;
    peak_ = std::max(peak_, now_);
  }
  void release(const Holder& holder) {
    const auto held = held_.extract(holder);
    for (const int value : held.mapped().values)
      if (--users_[{holder.microbatch, value}] == 0)
        now_ -= chain_.value_bytes[static_cast<size_t>(value)];
    now_ -= held.mapped().inner_bytes;
  }

  const MeasuredBlock& block(int number) const {
    return chain_.blocks[static_cast<size_t>(number)];
  }
  MemoryDecision decision_of(int number) const {
    return decision_for(decisions_, static_cast<size_t>(number));
  }

  void forward(const PipelineStep& step) {
    const auto [from, to] = cut_.blocks_of(step.part);
    const Holder ends{step.microbatch, step.part, kEnds};
    hold(ends, block(from).inputs);
    for (int i = from; i < to; ++i) {
      const SavedInBlock held = held_by(chain_, static_cast<size_t>(i), decision_of(i));
      hold({step.microbatch, step.part, i}, held.values, held.inner_bytes);
    }
    const SavedInBlock& by_loss = block(to - 1).saved_by_loss;
    hold({step.microbatch, step.part, kLoss}, by_loss.values, by_loss.inner_bytes);
    hold(ends, block(to - 1).outputs);
  }

  // While a block is in backward, all that it saves is there. The blocks after it are done.
  void backward(const PipelineStep& step) {
    release({step.microbatch, step.part, kLoss});
    backward_at_once(step, cut_.blocks_of(step.part).second);
    release({step.microbatch, step.part, kEnds});
  }

  // Backward of the blocks of the part before `to`.
  void backward_at_once(const PipelineStep& step, int to) {
    for (int i = to - 1; i >= cut_.blocks_of(step.part).first; --i) {
      const Holder holder{step.microbatch, step.part, i};
      hold(holder, {}, comes_back(i, block(i).saved));
      release(holder);
    }
  }

  // The bytes of saved tensors, or of a part of them, that a block's backward brings back. They
  // have memory of their own, but for the inputs of a block that runs again.
  int64_t comes_back(int number, const SavedInBlock& saved) const {
    const MemoryDecision decision = decision_of(number);
    if (decision == MemoryDecision::keep) return 0;
    if (decision != MemoryDecision::recompute) return chain_.moved_bytes(saved);
    return saved.inner_bytes + chain_.bytes_of(without(saved.values, block(number).inputs));
  }

  // The halves divide the backward of blocks through which gradients reach the part's input. All
  // of the others is in the second half. Returns the first of these.
  int end_of_split(int part) const {
    const auto [from, to] = cut_.blocks_of(part);
    int end = from;
    while (end < to && block(end).needs_input_gradient) ++end;
    return end == to ? to : from;
  }

  // A block's activations come back, as in a whole backward. The part that the second half needs
  // stays, and the input of the block goes unless it is in that part.
  void first_half(const PipelineStep& step) {
    const auto [from, to] = cut_.blocks_of(step.part);
    const Holder ends{step.microbatch, step.part, kEnds};
    if (end_of_split(step.part) == from) {
      // The gradients of outputs come while the outputs are there, and wait without them.
      const int64_t gradients = chain_.bytes_of(block(to - 1).outputs);
      const Holder arriving{step.microbatch, step.part, kArriving};
      hold(arriving, {}, gradients);
      release(ends);
      release(arriving);
      hold(ends, {}, gradients);
      return;
    }
    release({step.microbatch, step.part, kLoss});
    for (int i = to - 1; i >= from; --i) {
      const Holder holder{step.microbatch, step.part, i};
      hold(holder, {}, comes_back(i, block(i).saved));
      const SavedInBlock before = stays_in_backward(i, block(i).saved);
      release(holder);
      hold(holder, before.values, before.inner_bytes + block(i).first_half_extra_bytes);
      release(holder);
      const SavedInBlock left = stays_in_backward(i, block(i).between_halves);
      hold(holder, left.values, left.inner_bytes);
    }
    release(ends);
  }

  // The form in which a block has saved tensors in its backward. Those that came back have memory
  // of their own.
  SavedInBlock stays_in_backward(int number, const SavedInBlock& saved) const {
    if (decision_of(number) != MemoryDecision::recompute) return saved;
    std::vector<int> inputs;
    for (const int value : saved.values)
      if (contains(block(number).inputs, value)) inputs.push_back(value);
    return {inputs, comes_back(number, saved), 0};
  }

  void second_half(const PipelineStep& step) {
    const auto [from, to] = cut_.blocks_of(step.part);
    if (end_of_split(step.part) != from) {
      for (int i = from; i < to; ++i) release({step.microbatch, step.part, i});
      return;
    }
    backward(step);
  }

  const PipelinePlan& plan_;
  const Partition& cut_;
  const MeasuredChain& chain_;
  const std::vector<MemoryDecision>& decisions_;
  std::map<Holder, SavedInBlock> held_;
  std::map<std::pair<int, int>, int> users_;  // By micro-batch and value.
  int64_t now_ = 0, peak_ = 0;
};

}  // namespace

int64_t MeasuredChain::bytes_of(const std::vector<int>& values) const {
  int64_t bytes = 0;
  for (const int value : values) bytes += value_bytes[static_cast<size_t>(value)];
  return bytes;
}

SavedInBlock MeasuredChain::not_moved(const SavedInBlock& saved) const {
  SavedInBlock still{{}, saved.still_bytes, saved.still_bytes};
  for (const int value : saved.values)
    if (value_bytes[static_cast<size_t>(value)] < least_moved_bytes) still.values.push_back(value);
  return still;
}

int64_t MeasuredChain::moved_bytes(const SavedInBlock& saved) const {
  const SavedInBlock still = not_moved(saved);
  return saved.inner_bytes - still.inner_bytes + bytes_of(saved.values) - bytes_of(still.values);
}

Json MeasuredChain::to_json() const {
  Json json = {{"value_bytes", value_bytes},
               {"least_moved_bytes", least_moved_bytes},
               {"blocks", Json::array()}};
  for (const MeasuredBlock& block : blocks)
    json["blocks"].push_back({{"name", block.name},
                              {"forward_seconds", block.forward_seconds},
                              {"backward_seconds", block.backward_seconds},
                              {"inputs", block.inputs},
                              {"outputs", block.outputs},
                              {"needs_input_gradient", block.needs_input_gradient},
                              {"saved", saved_json(block.saved)},
                              {"saved_by_loss", saved_json(block.saved_by_loss)},
                              {"between_halves", saved_json(block.between_halves)},
                              {"first_half_extra_bytes", block.first_half_extra_bytes}});
  return json;
}

MeasuredChain MeasuredChain::from_json(const Json& json) {
  MeasuredChain chain;
  chain.value_bytes = json.at("value_bytes").get<std::vector<int64_t>>();
  chain.least_moved_bytes = json.at("least_moved_bytes").get<int64_t>();
  for (const Json& block : json.at("blocks"))
    chain.blocks.push_back(
        {.name = block.at("name").get<std::string>(),
         .forward_seconds = block.at("forward_seconds").get<double>(),
         .backward_seconds = block.at("backward_seconds").get<double>(),
         .inputs = block.at("inputs").get<std::vector<int>>(),
         .outputs = block.at("outputs").get<std::vector<int>>(),
         .needs_input_gradient = block.at("needs_input_gradient").get<bool>(),
         .saved = saved_from(block.at("saved")),
         .saved_by_loss = saved_from(block.at("saved_by_loss")),
         .between_halves = saved_from(block.at("between_halves")),
         .first_half_extra_bytes = block.at("first_half_extra_bytes").get<int64_t>()});
  return chain;
}

std::vector<BlockMemory> memory_of(const MeasuredChain& chain, int from, int to) {
  std::vector<BlockMemory> blocks;
  for (int i = from; i < to; ++i) {
    const MeasuredBlock& block = chain.blocks[static_cast<size_t>(i)];
    const std::vector<int> made = without(block.outputs, block.inputs);
    BlockMemory& memory = blocks.emplace_back();
    memory.name = block.name;
    memory.forward_seconds = block.forward_seconds;
    memory.backward_seconds = block.backward_seconds;
    memory.input_bytes = chain.bytes_of(block.inputs);
    memory.output_bytes = chain.bytes_of(made);
    memory.inner_bytes = block.saved.inner_bytes;
    memory.still_bytes = block.saved.still_bytes;
    memory.saves_input = memory.saves_output = false;
    for (const int value : block.saved.values) {
      if (chain.value_bytes[static_cast<size_t>(value)] == 0) continue;
      if (contains(block.inputs, value)) memory.saves_input = true;
      if (contains(made, value)) memory.saves_output = true;
      // The loss saves the model's output, which is neither.
      if (!contains(block.inputs, value) && !contains(made, value))
        memory.inner_bytes += chain.value_bytes[static_cast<size_t>(value)];
    }
  }
  return blocks;
}

std::vector<int> microbatches_held(const PipelinePlan& plan) {
  std::vector<int> most(static_cast<size_t>(plan.parts()), 0), now = most;
  for (const auto& steps : plan.steps)
    for (const PipelineStep& step : steps) {
      const auto part = static_cast<size_t>(step.part);
      if (step.task == PipelineTask::forward) most[part] = std::max(most[part], ++now[part]);
      if (step.task == PipelineTask::backward || step.task == PipelineTask::weight_gradient)
        --now[part];
    }
  return most;
}

std::vector<ActivationCost> activation_costs(const MeasuredChain& chain,
                                             const std::vector<MemoryDecision>& decisions) {
  std::vector<ActivationCost> costs;
  std::set<int> known;
  for (size_t i = 0; i < chain.blocks.size(); ++i) {
    const SavedInBlock held = held_by(chain, i, decision_for(decisions, i));
    ActivationCost& cost = costs.emplace_back(held.inner_bytes);
    for (const int value : chain.blocks[i].inputs)
      if (known.contains(value) || !contains(held.values, value))
        cost.entry_bytes += chain.value_bytes[static_cast<size_t>(value)];
    const SavedInBlock& by_loss = chain.blocks[i].saved_by_loss;
    cost.bytes += by_loss.inner_bytes;
    for (const auto* const values : {&held.values, &by_loss.values})
      for (const int value : *values)
        if (known.insert(value).second)
          cost.bytes += chain.value_bytes[static_cast<size_t>(value)];
  }
  return costs;
}

int64_t peak_activations(const PipelinePlan& plan, const Partition& cut,
                         const MeasuredChain& chain, const std::vector<MemoryDecision>& decisions,
                         int stage) {
  return StageOnPaper(plan, cut, chain, decisions).peak_of(stage);
}

}  // namespace trireme::plan
