// The tensors that the stages of a pipeline send each other: activations forward, and their
// gradients backward. Their number, shapes and types may change from message to message.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/group.h>
#include <trireme/data/batch.h>
#include <trireme/plan/pipeline_plan.h>
#include <list>
#include <map>
#include <memory>
#include <vector>

namespace trireme {

// Used by one thread. Waits end in the errors of Group.
class ActivationMail {
 public:
  // `stages` is the group along the pipeline: the rank in it is the stage. `plan` outlives the
  // object.
  ActivationMail(std::shared_ptr<Group> stages, const plan::PipelinePlan& plan)
      : stages_(std::move(stages)), plan_(plan) {}

  struct Item {
    at::Tensor tensor;           // Undefined: there is no gradient.
    bool requires_grad = false;  // The sender wants a gradient of it.
  };
  // Does not wait for the receiver. The tensors are kept until they are sent, and must not be
  // changed before.
  void send(const plan::PipelineMessage& message, const std::vector<Item>& items);
  // Messages may be taken in another order than that in which they were sent.
  std::vector<Item> receive(const plan::PipelineMessage& message);
  // Waits until all that was sent has left.
  void finish();

 private:
  std::vector<Item> receive_next(int from, int& tag);
  void post(const at::Tensor& tensor, int to);
  void drop_sent();

  struct Sent {
    at::Tensor tensor;
    WorkPtr work;
  };
  const std::shared_ptr<Group> stages_;
  const plan::PipelinePlan& plan_;
  std::list<Sent> sent_;
  // By the tag that the plan gives a message: those that came before they were asked for.
  std::map<int, std::vector<Item>> early_;
};

}  // namespace trireme
