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
  void operator()(const Message& message) const { sink.on_message(message.text); }
  void operator()(const RunEnd& end) const { sink.on_end(end); }
};

}  // namespace

void deliver(const Event& event, Sink& sink) { std::visit(Delivery{sink}, event); }

}  // namespace trireme::monitor
