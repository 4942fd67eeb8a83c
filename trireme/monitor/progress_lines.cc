#include <trireme/monitor/event_json.h>
#include <trireme/monitor/sink.h>
#include <string_view>

namespace trireme::monitor {
namespace {

class ProgressLines : public Sink {
 public:
  explicit ProgressLines(std::FILE* out) : out_(out) {}
  void on_start(const RunStart& start) override { write(start); }
  void on_step(const StepRecord& step) override { write(step); }
  void on_eval(const EvalRecord& eval) override { write(eval); }
  void on_message(const std::string& text) override { write(Message{text}); }
  void on_end(const RunEnd& end) override { write(end); }

 private:
  void write(const Event& event) {
    const std::string line = kProgressMark + to_line(to_json(event)) + "\n";
    std::fwrite(line.data(), 1, line.size(), out_);
    std::fflush(out_);
  }
  std::FILE* out_;
};

struct Replay {
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

std::unique_ptr<Sink> make_progress_lines(std::FILE* out) {
  return std::make_unique<ProgressLines>(out);
}

bool replay_progress(const std::string& line, Sink& sink) {
  if (!line.starts_with(kProgressMark)) return false;
  const auto text = std::string_view(line).substr(std::string_view(kProgressMark).size());
  const auto event = event_of(Json::parse(text, nullptr, /*allow_exceptions=*/false));
  if (!event) return false;
  std::visit(Replay{sink}, *event);
  return true;
}

}  // namespace trireme::monitor
