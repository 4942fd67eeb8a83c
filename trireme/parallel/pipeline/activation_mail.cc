#include <ATen/core/Tensor.h>

#include <trireme/parallel/pipeline/activation_mail.h>
#include <trireme/plan/pipeline_inbox.h>
#include <algorithm>
#include <utility>

namespace trireme {
namespace {

// MPI moves a message only while a thread polls for it, which would take the core of the stage.
bool moves_without_a_core(const Group& stages) {
  return stages.runs_in_background() && stages.backend() != "mpi";
}

}  // namespace

pipeline::ActivationInbox* ActivationMail::inbox_of(int from) {
  const auto found = std::ranges::find(inboxes_, from, &pipeline::ActivationInbox::from);
  return found == inboxes_.end() ? nullptr : &*found;
}

void ActivationMail::begin_pass(const std::vector<bool>& has_samples) {
  if (!moves_without_a_core(*stages_)) return;
  for (plan::PipelineInbox& theirs : plan::inboxes_of(plan_, stages_->rank(), has_samples)) {
    if (!inbox_of(theirs.from)) inboxes_.emplace_back(stages_, theirs.from, *all_);
    inbox_of(theirs.from)->begin_pass(std::move(theirs.after));
  }
}

void ActivationMail::drop_sent() {
  sent_.remove_if([](Sent& sent) { return sent.work->is_done(); });
}

// Messages between two stages keep their order, and a letter says which one follows.
void ActivationMail::send(const plan::PipelineMessage& message, const std::vector<Item>& items) {
  drop_sent();
  for (at::Tensor& part : pipeline::parts_of({plan_.tag_of(message), items})) {
    WorkPtr work = stages_->send_async(part, message.to);
    sent_.push_back({std::move(part), std::move(work)});
  }
  for (pipeline::ActivationInbox& inbox : inboxes_) inbox.count_sent();
}

std::vector<ActivationMail::Item> ActivationMail::receive(const plan::PipelineMessage& message) {
  const int wanted = plan_.tag_of(message);
  for (auto found = early_.find(wanted);; found = early_.find(wanted)) {
    if (found != early_.end()) {
      auto items = std::move(found->second);
      early_.erase(found);
      return items;
    }
    pipeline::ActivationMessage next = next_of(message.from);
    if (next.tag == wanted) return std::move(next.items);
    early_.emplace(next.tag, std::move(next.items));
  }
}

pipeline::ActivationMessage ActivationMail::next_of(int from) {
  auto* const inbox = inbox_of(from);
  if (inbox && inbox->expects()) return inbox->take();
  return pipeline::receive_message(*stages_, from, [](Work& work) { work.wait(); });
}

void ActivationMail::finish() {
  for (Sent& sent : sent_) sent.work->wait();
  sent_.clear();
}

}  // namespace trireme
