#include <trireme/monitor/event_json.h>
#include <trireme/monitor/sink.h>
#include <string_view>

namespace trireme::monitor {
namespace {

class ProgressLines : public EventSink {
 public:
  explicit ProgressLines(std::FILE* out) : out_(out) {}
  void take(const Event& event) override {
    // Only the log needs the samples of each step, and the faults.
    if (std::holds_alternative<ContinueRecord>(event) ||
        std::holds_alternative<CommitRecord>(event) || std::holds_alternative<FaultRecord>(event))
      return;
    const std::string line = kProgressMark + to_line(to_json(event)) + "\n";
    std::fwrite(line.data(), 1, line.size(), out_);
    std::fflush(out_);
  }

 private:
  std::FILE* out_;
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
  sink.take(*event);
  return true;
}

}  // namespace trireme::monitor
