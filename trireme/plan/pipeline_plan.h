// Decides which stage of a pipeline computes which part of the model for which micro-batch, and in
// which order. The functions are pure: the same facts give the same plan on every stage.
//
// The model is cut into `parts`, numbered in the order in which a batch passes through them. A
// stage has one part or several (`chunks`). It runs its pipeline steps strictly one after the
// other; a step waits for the messages that it needs, and sends do not wait for their receivers.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

enum class PipelineTask {
  forward,          // F
  backward,         // B: the gradients of inputs and weights, in one step.
  input_gradient,   // I: the gradient of the part's input, for which the part before it waits.
  weight_gradient,  // W: the gradients of the part's weights, any time after I.
};
char letter_of(PipelineTask task);

struct PipelineStep {
  PipelineTask task = PipelineTask::forward;
  int microbatch = 0;
  int part = 0;
  bool operator==(const PipelineStep&) const = default;
};
// Part, letter and micro-batch, such as "0F3".
std::string to_string(const PipelineStep& step);

// The way in which the parts are dealt out to the stages.
enum class PipelineFold {
  loop,  // Part p is on stage p % stages.
  v,     // Parts 0, 1, ... go down the stages, and the next ones come up again: part 2K-1 of K
         // stages is on stage 0. There are two parts on each stage.
};

struct PipelineFacts {
  std::string schedule = "1f1b";  // One of pipeline_schedules(), or "text".
  int stages = 1;
  int microbatches = 1;
  int chunks = 0;  // Parts on each stage. 0: as few as the schedule allows.
  PipelineFold fold = PipelineFold::loop;  // The schedule decides it.
};

// A tensor list that one stage sends to another: the activations that enter `part`, or the
// gradients of the outputs of `part`.
struct PipelineMessage {
  bool is_gradient = false;
  int microbatch = 0;
  int part = 0;  // The part that takes it.
  int from = 0, to = 0;
  bool operator==(const PipelineMessage&) const = default;
};

struct PipelinePlan {
  PipelineFacts facts;                           // As resolved: `chunks` is at least 1.
  std::vector<std::vector<PipelineStep>> steps;  // [stage]: in the order in which it runs them.

  int parts() const { return facts.stages * facts.chunks; }
  int stage_of(int part) const;
  std::vector<int> parts_of(int stage) const;  // In the model's order.
  // The message for which `step` waits, and the message that its stage sends after it. There is
  // none at the ends of the model, between parts of one stage, and for weight gradients.
  std::optional<PipelineMessage> needs(const PipelineStep& step) const;
  std::optional<PipelineMessage> sends(const PipelineStep& step) const;
  // A number from 0 to 2 x parts x microbatches - 1 that no other message of the plan has.
  int tag_of(const PipelineMessage& message) const;
  // Whether some backward is in two halves.
  bool splits_backward() const;
  // The messages that `stage` sends.
  int64_t messages_sent(int stage) const;

  // The plan in the form that parse_pipeline() reads: one line for each stage.
  std::string to_text() const;
  // The picture of pipeline_picture.h with the default costs. check() must accept the plan.
  std::string describe() const;
  Json to_json() const;
};

// The schedules that plan_pipeline() knows: "naive", "gpipe", "1f1b", "interleaved", "zbh1",
// "zbh2", "zbv".
std::vector<std::string> pipeline_schedules();

// Any numbers of stages and micro-batches from 1 are planned. Throws Error(invalid_argument)
// naming the fact, its value and the rule: an unknown schedule (with the nearest known one), a
// number below 1, chunks that the schedule does not have, or more steps than a plan may have.
PipelinePlan plan_pipeline(const PipelineFacts& facts);

// Executes the plan on symbols. Throws an Error that shows the plan as a grid, with the wrong cell
// marked, unless all of these hold:
// - Each part runs forward for each micro-batch once, on its own stage; and backward once, or the
//   gradient of the input once and after it that of the weights once.
// - Stages that run their steps in order, with sends that do not block and receives that do, come
//   to the end: no step waits for ever. Each message has one sender, one receiver and a tag of its
//   own, so it does not matter in which order messages arrive.
// - If `buffers` is given, they also come to the end where a send waits while more than so many
//   messages wait between two stages, in one direction. The engine's sends never wait.
// The code is invalid_argument for a plan from text or with `buffers`, and internal for any other.
void check(const PipelinePlan& plan, std::optional<int> buffers = std::nullopt);

}  // namespace trireme::plan
