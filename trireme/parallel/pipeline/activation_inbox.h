// Receives the messages of one other stage ahead of the steps that need them, in a thread of its
// own: while a step computes, the next message moves. For groups that run in the background.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/parallel/pipeline/activation_message.h>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme::pipeline {

// Used by one thread. At most one message is received that nobody has taken yet, or on its way.
class ActivationInbox {
 public:
  // `all`: the group of all ranks, whose numbers errors name.
  ActivationInbox(std::shared_ptr<Group> stages, int from, const Group& all);
  // Does not wait for messages: a receive that has begun is left to the group.
  ~ActivationInbox();
  ActivationInbox(const ActivationInbox&) = delete;
  ActivationInbox& operator=(const ActivationInbox&) = delete;

  int from() const { return from_; }
  // A pass begins, in which these messages come: see plan::PipelineInbox. All messages of the one
  // before have been taken.
  void begin_pass(std::vector<int> after);
  // A message of this stage has left, to any other one.
  void count_sent();
  // Whether messages of the pass are left.
  bool expects();
  // Waits for the next message of the pass. Throws the error of its receive.
  ActivationMessage take();

 private:
  void run();
  bool may_receive() const;
  void await(Work& work);

  const std::shared_ptr<Group> stages_;
  const int from_;
  std::mutex mutex_;  // Guards all that follows.
  std::condition_variable changed_;
  std::deque<int> expected_;  // Those that have not arrived: see plan::PipelineInbox::after.
  std::deque<ActivationMessage> arrived_;
  int sent_ = 0;
  bool is_awaited_ = false, ended_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace trireme::pipeline
