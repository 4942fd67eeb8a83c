#include <trireme/monitor/sink.h>
#include <utility>

namespace trireme::monitor {
namespace {

class FanOut : public Sink {
 public:
  explicit FanOut(std::vector<std::unique_ptr<Sink>> sinks) : sinks_(std::move(sinks)) {}
  explicit FanOut(OpenSinks open) : open_(std::move(open)) {}
  void on_start(const RunStart& start) override {
    if (const OpenSinks open = std::exchange(open_, nullptr)) sinks_ = open();
    for (const auto& sink : sinks_) sink->on_start(start);
  }
  void on_step(const StepRecord& step) override {
    for (const auto& sink : sinks_) sink->on_step(step);
  }
  void on_eval(const EvalRecord& eval) override {
    for (const auto& sink : sinks_) sink->on_eval(eval);
  }
  void on_continue(const ContinueRecord& from) override {
    for (const auto& sink : sinks_) sink->on_continue(from);
  }
  void on_commit(const CommitRecord& commit) override {
    for (const auto& sink : sinks_) sink->on_commit(commit);
  }
  void on_message(const std::string& text) override {
    for (const auto& sink : sinks_) sink->on_message(text);
  }
  void on_end(const RunEnd& end) override {
    for (const auto& sink : sinks_) sink->on_end(end);
  }

 private:
  OpenSinks open_;  // Empty after the start.
  std::vector<std::unique_ptr<Sink>> sinks_;
};

}  // namespace

std::unique_ptr<Sink> make_fan_out(std::vector<std::unique_ptr<Sink>> sinks) {
  return std::make_unique<FanOut>(std::move(sinks));
}
std::unique_ptr<Sink> make_on_demand(OpenSinks open) {
  return std::make_unique<FanOut>(std::move(open));
}

}  // namespace trireme::monitor
