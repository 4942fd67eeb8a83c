// The tensors that the stages of a pipeline send each other: activations forward, and their
// gradients backward. Their number, shapes and types may change from message to message.
//
// If messages run in the background (TCP and Gloo), the next message of each other stage is
// received while a step computes. Their groups take receives of one thread and sends of another.
// Elsewhere a message moves when a step asks for it: the stages of a host read each other's
// memory, and a thread that waits would only take a core.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/group.h>
#include <trireme/parallel/pipeline/activation_inbox.h>
#include <trireme/parallel/pipeline/activation_message.h>
#include <trireme/plan/pipeline_plan.h>
#include <list>
#include <map>
#include <memory>
#include <vector>

namespace trireme {

// Used by one thread. Waits end in the errors of Group.
class ActivationMail {
 public:
  using Item = pipeline::ActivationItem;

  // `stages` is the group along the pipeline: the rank in it is the stage. `all` is the group of
  // all ranks, whose numbers errors name. `plan` outlives the object.
  ActivationMail(std::shared_ptr<Group> stages, std::shared_ptr<Group> all,
                 const plan::PipelinePlan& plan)
      : stages_(std::move(stages)), all_(std::move(all)), plan_(plan) {}

  // The steps of the plan begin, of those micro-batches that have samples. Without this call
  // nothing is received ahead.
  void begin_pass(const std::vector<bool>& has_samples);
  // Does not wait for the receiver. The tensors are kept until they are sent, and must not be
  // changed before.
  void send(const plan::PipelineMessage& message, const std::vector<Item>& items);
  // Messages may be taken in another order than that in which they were sent.
  std::vector<Item> receive(const plan::PipelineMessage& message);
  // Waits until all that was sent has left.
  void finish();
  // The steps are not run to the end, and the object is not used again: nothing more is received.
  void abandon() { inboxes_.clear(); }

 private:
  pipeline::ActivationMessage next_of(int from);
  pipeline::ActivationInbox* inbox_of(int from);
  void drop_sent();

  struct Sent {
    at::Tensor tensor;
    WorkPtr work;
  };
  const std::shared_ptr<Group> stages_, all_;
  const plan::PipelinePlan& plan_;
  std::list<Sent> sent_;
  // By the tag that the plan gives a message: those that came before they were asked for.
  std::map<int, std::vector<Item>> early_;
  // The stages whose messages are received ahead, from the first pass on.
  std::list<pipeline::ActivationInbox> inboxes_;
};

}  // namespace trireme
