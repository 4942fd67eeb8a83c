#include <trireme/base/unix_time.h>
#include <trireme/monitor/append_file.h>
#include <trireme/monitor/event_json.h>
#include <trireme/monitor/sink.h>

namespace trireme::monitor {
namespace {

class JsonLines : public EventSink {
 public:
  explicit JsonLines(const std::filesystem::path& file) : file_(file) {}
  void take(const Event& event) override {
    file_.append(to_line(to_json(event, unix_seconds())) + "\n");
  }

 private:
  AppendFile file_;
};

}  // namespace

std::unique_ptr<Sink> make_json_lines(const std::filesystem::path& file) {
  return std::make_unique<JsonLines>(file);
}

}  // namespace trireme::monitor
