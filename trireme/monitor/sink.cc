#include <trireme/monitor/sink.h>

namespace trireme::monitor {
namespace {

struct Delivery {
  Sink& sink;
  void operator()(const RunStart& start) const { sink.on_start(start); }
  void operator()(const StepRecord& step) const { sink.on_step(step); }
  void operator()(const EvalRecord& eval) const { sink.on_eval(eval); }
  void operator()(const ContinueRecord& from) const { sink.on_continue(from); }
  void operator()(const CommitRecord& commit) const { sink.on_commit(commit); }
  void operator()(const RunEnd& end) const { sink.on_end(end); }
  // People read of these elsewhere: a process prints its faults, and the launcher its notices.
  void operator()(const FaultRecord&) const {}
  void operator()(const NoticeRecord&) const {}
  template <typename Sentence>
  void operator()(const Sentence& sentence) const {
    sink.on_message(sentence_of(sentence));
  }
};

}  // namespace

std::string sentence_of(const Event& event) {
  if (const auto* const message = std::get_if<Message>(&event)) return message->text;
  if (const auto* const save = std::get_if<SaveRecord>(&event))
    return "checkpoint saved: " + save->path;
  if (const auto* const guard = std::get_if<GuardRecord>(&event))
    return (guard->action == "rollback" ? "back to the newest checkpoint: " : "batch skipped: ") +
           guard->reason;
  return {};
}

void Sink::take(const Event& event) { std::visit(Delivery{*this}, event); }

}  // namespace trireme::monitor
