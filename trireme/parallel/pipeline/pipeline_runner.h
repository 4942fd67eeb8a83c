// Runs one stage of a pipeline: its steps of a PipelinePlan, one after the other.
//
// Each part runs forward on micro-batches whose first tensors are leaves of their own, so a part's
// backward ends at them, and their gradients go to the part before it (Huang et al. 2019, "GPipe",
// section 2.2).
#pragma once
#include <trireme/parallel/activation_memory.h>
#include <trireme/parallel/engine.h>
#include <trireme/parallel/mesh/parameter_keeper.h>
#include <trireme/parallel/pipeline/activation_mail.h>
#include <trireme/parallel/pipeline/part_times.h>
#include <trireme/parallel/pipeline/split_backward.h>
#include <trireme/plan/pipeline_plan.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// The blocks of one part of the model, of those of this stage.
struct PipelinePart {
  int number = 0;        // In the model.
  int first_block = 0;   // The place of its first block in the model.
  size_t first_own = 0;  // The same among the blocks of the stage.
  std::vector<Block> blocks;
};

// Used by one thread.
class PipelineRunner {
 public:
  // The references outlive the object. The blocks of `parts` are those of the keeper.
  PipelineRunner(const EngineSetting& setting, std::shared_ptr<Group> stages, int data_rank,
                 const plan::PipelinePlan& plan, std::vector<PipelinePart> parts,
                 ParameterKeeper& keeper);
  // Decides about the activations of the stage's blocks, before the first step. At the beginning
  // all are kept. `peak_bytes`: the bytes that they are predicted to take, to which swapping
  // keeps. `read_from`: see SwapOptions. Throws as ActivationMemory::decide() does.
  void decide(const std::vector<plan::MemoryDecision>& decisions, int64_t peak_bytes,
              std::vector<int> read_from);

  // COLLECTIVE along the pipeline. Leaves the gradients of the stage's parameters in .grad:
  // `scale` x this replica's part of the gradient of the mean loss over the global batch. Only the
  // last stage knows loss and samples.
  Contribution compute(const StepRequest& request, double scale);
  // COLLECTIVE along the pipeline, without gradients. The last stage returns the output, the
  // others an undefined tensor.
  at::Tensor evaluate(const Batch& batch);
  PartTimes& times() { return times_; }
  // The most bytes of activations that were held at a time: those that autograd saved, the inputs
  // and outputs of parts, and the gradients between the halves of a split backward. If all are
  // kept, the first step tells, so that the others need not be counted.
  int64_t peak_activation_bytes() const { return memory_.bytes().peak(); }
  // The bytes that the first micro-batch, which is the largest, held after its forward through the
  // first part of this stage.
  int64_t first_activation_bytes() const { return first_activation_bytes_; }
  // Takes part in what other replicas do in evaluate().
  void evaluate_without_samples();

 private:
  // A micro-batch between forward and backward of a part.
  struct Live {
    Tensors inputs, outputs;
    std::optional<pipeline::SplitBackward> split;  // Between its halves.
    ActivationMemory::Holds holds;                 // They end before the tensors do.
  };
  // The micro-batches of one pass over the schedule.
  struct Pass {
    const StepRequest& request;
    double scale;
    std::vector<Batch> microbatches;
    int first_microbatch = 0;  // The place of its first one in the step.
  };
  void run(const Pass& pass, Contribution& mine);
  void forward(const plan::PipelineStep& step, const Pass& pass, Contribution& mine);
  void backward(const plan::PipelineStep& step, const Pass& pass);
  void backward_weights(const plan::PipelineStep& step);
  // Counts the gradients between the halves of a split backward.
  std::function<ActivationBytes::Hold(const c10::Storage&)> counting();
  void begin_backward(const plan::PipelineStep& step);
  Tensors inputs_of(const plan::PipelineStep& step, const Batch& batch);
  Tensors run_blocks(const PipelinePart& part, Tensors tensors, const Pass& pass, int microbatch);
  at::Tensor loss_of(const at::Tensor& output, const Batch& batch);
  void hand_on(const plan::PipelineStep& step, const Tensors& outputs);
  Tensors gradients_for(const plan::PipelineStep& step, const Live& live, const Pass& pass);
  const PipelinePart& part(int number) const;
  void run_without_samples(const plan::PipelineStep& step);
  bool is_last_part(int number) const { return number + 1 == plan_.parts(); }

  const EngineSetting& setting_;
  const int data_rank_;
  const plan::PipelinePlan& plan_;
  const std::vector<PipelinePart> parts_;
  ParameterKeeper& keeper_;
  ActivationMail mail_;
  const std::vector<plan::PipelineStep>& steps_;  // The steps of this stage.
  std::map<std::pair<int, int>, Live> live_;      // By part and micro-batch.
  // The tensors that parts of this stage hand each other.
  std::map<std::pair<int, int>, std::vector<ActivationMail::Item>> inputs_, gradients_;
  PartTimes times_;
  ActivationMemory memory_;
  bool moves_activations_ = false, counts_activations_ = true;
  int64_t first_activation_bytes_ = 0;
};

}  // namespace trireme
