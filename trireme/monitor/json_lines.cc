#include <trireme/base/unix_time.h>
#include <trireme/monitor/append_file.h>
#include <trireme/monitor/event_json.h>
#include <trireme/monitor/sink.h>

namespace trireme::monitor {
namespace {

class JsonLines : public Sink {
 public:
  explicit JsonLines(const std::filesystem::path& file) : file_(file) {}
  void on_start(const RunStart& start) override { write(start); }
  void on_step(const StepRecord& step) override { write(step); }
  void on_eval(const EvalRecord& eval) override { write(eval); }
  void on_continue(const ContinueRecord& from) override { write(from); }
  void on_commit(const CommitRecord& commit) override { write(commit); }
  void on_message(const std::string& text) override { write(Message{text}); }
  void on_end(const RunEnd& end) override { write(end); }

 private:
  void write(const Event& event) { file_.append(to_line(to_json(event, unix_seconds())) + "\n"); }
  AppendFile file_;
};

}  // namespace

std::unique_ptr<Sink> make_json_lines(const std::filesystem::path& file) {
  return std::make_unique<JsonLines>(file);
}

}  // namespace trireme::monitor
