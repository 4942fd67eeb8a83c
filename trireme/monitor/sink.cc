#include <trireme/monitor/sink.h>

namespace trireme::monitor {
namespace {

struct Delivery {
  Sink& sink;
  void operator()(const RunStart& start) const { sink.on_start(start); }
  void operator()(const StepRecord& step) const { sink.on_step(step); }
  void operator()(const EvalRecord& eval) const { sink.on_eval(eval); }
  void operator()(const ScalarRecord& scalars) const { sink.on_scalars(scalars); }
  void operator()(const ContinueRecord& from) const { sink.on_continue(from); }
  void operator()(const CommitRecord& commit) const { sink.on_commit(commit); }
  void operator()(const RunEnd& end) const { sink.on_end(end); }
  // People read of these elsewhere: a process prints its faults, the launcher its notices, and a
  // guard's record or a message says why a batch was skipped.
  void operator()(const FaultRecord&) const {}
  void operator()(const NoticeRecord&) const {}
  void operator()(const SkipRecord&) const {}
  template <typename Sentence>
  void operator()(const Sentence& sentence) const {
    sink.on_message(sentence_of(sentence));
  }
};

}  // namespace

StepRecord merged(const StepRecord& earlier, const StepRecord& later) {
  StepRecord both = later;
  both.samples += earlier.samples;
  if (both.samples > 0)
    both.loss += (earlier.loss - later.loss) * static_cast<double>(earlier.samples) /
                 static_cast<double>(both.samples);
  both.seconds += earlier.seconds;
  both.operations += earlier.operations;
  both.bytes_sent += earlier.bytes_sent;
  both.steps += earlier.steps;
  both.waited += earlier.waited;
  return both;
}

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
