#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/tensor/recompute.h>
#include <trireme/tensor/repeated_run.h>
#include <algorithm>
#include <mutex>

namespace trireme {
namespace {

using StepKind = RecomputeStep::Kind;

RepeatedRun::Purpose purpose_of(StepKind kind) {
  switch (kind) {
    case StepKind::save: return RepeatedRun::Purpose::save;
    case StepKind::keep_inputs: return RepeatedRun::Purpose::keep_inputs;
    default: return RepeatedRun::Purpose::pass;
  }
}

}  // namespace

// The runs of a pass, and how far backward has come with its steps. It stands before a step, or
// before the backward of the block that uses its saved tensors now.
class RecomputedPass::Repetition {
 public:
  Repetition(size_t blocks, std::shared_ptr<const std::vector<RecomputeStep>> steps)
      : runs_(blocks), steps_(std::move(steps)) {}

  RepeatedRun& begin(size_t place, std::unique_ptr<RepeatedRun> run) {
    const std::lock_guard lock(mutex_);
    runs_[place] = std::move(run);
    return *runs_[place];
  }

  at::Tensor get(size_t block, size_t index) {
    const std::lock_guard lock(mutex_);
    RepeatedRun& run = *runs_[block];
    if (run.stays(index)) return run.take(index);
    if (FirstOfTwoBackwards::is_running() && runs_.size() > 1)
      throw Error(ErrorCode::internal, "tensor", "a pass of several blocks has one backward");
    run.keeper().tell_use();
    const int task = torch::autograd::get_current_graph_task_id();
    if (task != graph_task_) begin_again();
    graph_task_ = task;
    if (!run.has(index)) {
      try {
        if (run.has_ended())
          go_to_backward_of(block);
        else  // Its forward computes gradients of its own.
          run.repeat(nullptr, RepeatedRun::Purpose::save, /*makes_outputs=*/false);
      } catch (...) {
        begin_again();
        throw;
      }
    }
    return run.take(index);
  }

  // The graph has let go of a tensor.
  void forget(size_t block, size_t index) {
    const std::lock_guard lock(mutex_);
    runs_[block]->forget(index);
  }

 private:
  void begin_again() {
    for (const auto& run : runs_)
      if (run) run->forget_saved();
    value_.reset();
    next_ = 0;
  }

  void go_to_backward_of(size_t block) {
    const size_t end = static_cast<size_t>(
        std::ranges::find_if(*steps_,
                             [&](const RecomputeStep& step) {
                               return step.kind == StepKind::backward && step.block == block;
                             }) -
        steps_->begin());
    // A tensor that has been taken already is asked for again.
    if (next_ >= end) begin_again();
    for (; next_ < end; ++next_) {
      const RecomputeStep& step = (*steps_)[next_];
      if (step.kind == StepKind::backward)
        release(step.block);
      else if (step.block <= block)  // The backward of those behind it is over.
        repeat(step);
    }
  }

  void repeat(const RecomputeStep& step) {
    const bool has_value = value_ && value_of_ == step.block;
    std::optional<RepeatedRun::Value> input = std::move(value_);
    value_.reset();
    const size_t after = next_ + 1;
    const bool makes_outputs =
        (*steps_)[after].kind != StepKind::backward && (*steps_)[after].block == step.block + 1;
    value_ = runs_[step.block]->repeat(has_value ? &*input : nullptr, purpose_of(step.kind),
                                       makes_outputs);
    value_of_ = step.block + 1;
  }

  // Backward through a block is over.
  void release(size_t block) {
    runs_[block]->forget_saved();
    if (!torch::autograd::get_current_graph_task_keep_graph()) runs_[block]->forget_inputs();
  }

  std::recursive_mutex mutex_;  // A repetition may end a graph, and with it tensors of this pass.
  std::vector<std::unique_ptr<RepeatedRun>> runs_;  // [block] Null for blocks without steps.
  const std::shared_ptr<const std::vector<RecomputeStep>> steps_;
  size_t next_ = 0;
  int graph_task_ = -1;                      // The backward that all this belongs to.
  std::optional<RepeatedRun::Value> value_;  // The input of block value_of_.
  size_t value_of_ = 0;
};

// The place of a tensor in the order of saving.
class RecomputedPass::Saved : public SavedTensor {
 public:
  Saved(std::shared_ptr<RecomputedPass> pass, size_t block, size_t index)
      : pass_(std::move(pass)), block_(block), index_(index) {}
  ~Saved() override { pass_->forget(block_, index_); }
  at::Tensor get() override { return pass_->get(block_, index_); }

 private:
  std::shared_ptr<RecomputedPass> pass_;
  size_t block_, index_;
};

RecomputedPass::RecomputedPass(size_t blocks,
                               std::shared_ptr<const std::vector<RecomputeStep>> steps)
    : repetition_(std::make_unique<Repetition>(blocks, std::move(steps))) {}
RecomputedPass::~RecomputedPass() = default;

std::vector<at::Tensor> RecomputedPass::run(size_t place, const RecomputedBlock& block,
                                            const std::vector<at::Tensor>& inputs,
                                            std::shared_ptr<const KeeperSetting> keeper,
                                            const RecomputedBlock::Surroundings& surroundings,
                                            bool keeps_inputs) {
  if (!at::GradMode::is_enabled()) return block.block_->setting.forward(inputs);
  RepeatedRun& run = repetition_->begin(
      place, std::make_unique<RepeatedRun>(block.block_, std::move(keeper), surroundings));
  return run.run(inputs, keeps_inputs, [this, place](size_t index) {
    return std::make_unique<Saved>(shared_from_this(), place, index);
  });
}

at::Tensor RecomputedPass::get(size_t place, size_t index) {
  return repetition_->get(place, index);
}

void RecomputedPass::forget(size_t place, size_t index) { repetition_->forget(place, index); }

RecomputedBlock::RecomputedBlock(RecomputeSetting setting)
    : block_(std::make_shared<RepeatedBlock>(RepeatedBlock{std::move(setting)})) {}

std::vector<at::Tensor> RecomputedBlock::operator()(const std::vector<at::Tensor>& inputs,
                                                    std::shared_ptr<const KeeperSetting> keeper,
                                                    const Surroundings& surroundings) {
  static const auto steps = std::make_shared<const std::vector<RecomputeStep>>(
      std::vector<RecomputeStep>{{StepKind::save, 0}, {StepKind::backward, 0}});
  return std::make_shared<RecomputedPass>(1, steps)->run(0, *this, inputs, std::move(keeper),
                                                         surroundings, /*keeps_inputs=*/true);
}

}  // namespace trireme
