#include <trireme/monitor/sink.h>
#include <utility>

namespace trireme::monitor {
namespace {

class FanOut : public EventSink {
 public:
  explicit FanOut(std::vector<std::unique_ptr<Sink>> sinks) : sinks_(std::move(sinks)) {}
  explicit FanOut(OpenSinks open) : open_(std::move(open)) {}
  void take(const Event& event) override {
    if (std::holds_alternative<RunStart>(event))
      if (const OpenSinks open = std::exchange(open_, nullptr)) sinks_ = open();
    for (const auto& sink : sinks_) sink->take(event);
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
