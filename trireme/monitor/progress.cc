#include <fmt/format.h>
#include <sys/ioctl.h>
#include <trireme/monitor/progress_line.h>
#include <trireme/monitor/run_state.h>
#include <trireme/monitor/sink.h>
#include <trireme/monitor/summary.h>
#include <trireme/monitor/text.h>
#include <unistd.h>

namespace trireme::monitor {
namespace {

using TimePoint = RunState::TimePoint;
constexpr std::chrono::milliseconds kRedrawInterval{100};

std::string start_line(const RunStart& start) {
  std::string line = "Training";
  if (!start.name.empty()) line += " " + start.name;
  line += ": ";
  if (!start.strategy.empty()) line += start.strategy + ", ";
  line += counted(start.workers, "worker");
  if (start.world_size != start.workers) line += ", " + counted(start.world_size, "replica");
  if (start.parameters > 0) line += ", " + counted(start.parameters, "parameter");
  if (start.total_steps > 0) line += ", " + counted(start.total_steps, "step");
  if (start.first_step > 0) line += fmt::format(", resumed after step {}", start.first_step);
  return line;
}

std::string eval_line(const EvalRecord& eval, std::optional<double> train_loss) {
  std::string line = fmt::format("epoch {}: ", eval.epoch + 1);
  if (train_loss) line += fmt::format("loss {}, ", loss_text(*train_loss));
  line += fmt::format("held-out loss {}, accuracy {:.1f} %", loss_text(eval.loss),
                      eval.accuracy * 100);
  for (const auto& [name, value] : eval.metrics) line += fmt::format(", {} {:.4g}", name, value);
  return line;
}

// The events that both displays share. The derived classes put the lines on the screen.
class Progress : public Sink {
 public:
  Progress(std::FILE* out, NowFunction now)
      : out_(out), now_(now ? std::move(now) : &std::chrono::steady_clock::now) {}

  void on_start(const RunStart& start) override {
    state_ = RunState(start);
    lasting_line(start_line(start));
  }
  void on_step(const StepRecord& step) override {
    const TimePoint now = now_();
    state_.step(step, now);
    show(now);
  }
  void on_eval(const EvalRecord& eval) override {
    lasting_line(eval_line(eval, state_.mean_loss(eval.epoch)));
  }
  void on_message(const std::string& text) override { lasting_line(text); }
  void on_end(const RunEnd& end) override {
    final_line("");
    for (const std::string& line : summary_lines(end)) final_line(line);
  }

 protected:
  virtual void show(TimePoint now) = 0;
  virtual void lasting_line(const std::string& line) = 0;
  virtual void final_line(const std::string& line) = 0;

  void put(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), out_);
    std::fflush(out_);
  }
  std::FILE* out_;
  NowFunction now_;
  RunState state_;
};

class TerminalProgress : public Progress {
 public:
  using Progress::Progress;
  ~TerminalProgress() override {
    // The run ended without on_end(), so the next output starts on a line of its own.
    if (drawn_) put("\n");
  }

 private:
  static constexpr const char* kErase = "\r\x1b[K";

  void show(TimePoint now) override {
    if (drawn_ && now - drawn_at_ < kRedrawInterval && !state_.at_run_end()) return;
    put(bar());
    drawn_at_ = now;
    drawn_ = true;
  }
  void lasting_line(const std::string& line) override {
    put(kErase + printable(line) + "\n" + bar());
    drawn_ = true;
    drawn_at_ = now_();
  }
  void final_line(const std::string& line) override {
    put((drawn_ ? kErase : "") + printable(line) + "\n");
    drawn_ = false;
  }

  std::string bar() const { return "\r" + bar_line(state_.view(), width()) + "\x1b[K"; }
  int width() const {
    winsize size{};
    return ::ioctl(::fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  }

  bool drawn_ = false;
  TimePoint drawn_at_;
};

class PlainProgress : public Progress {
 public:
  PlainProgress(std::FILE* out, double interval_seconds, NowFunction now)
      : Progress(out, std::move(now)), interval_(interval_seconds) {}

 private:
  void show(TimePoint now) override {
    if (!shown_at_) shown_at_ = now;
    const bool due = now - *shown_at_ >= interval_;
    if (!due && !state_.at_epoch_end() && !state_.at_run_end()) return;
    put(plain_line(state_.view()) + "\n");
    shown_at_ = now;
  }
  void lasting_line(const std::string& line) override { put(printable(line) + "\n"); }
  void final_line(const std::string& line) override { put(printable(line) + "\n"); }

  std::chrono::duration<double> interval_;
  std::optional<TimePoint> shown_at_;
};

}  // namespace

std::unique_ptr<Sink> make_progress(std::FILE* out, bool terminal, double plain_interval_seconds,
                                    NowFunction now) {
  if (terminal) return std::make_unique<TerminalProgress>(out, std::move(now));
  return std::make_unique<PlainProgress>(out, plain_interval_seconds, std::move(now));
}

}  // namespace trireme::monitor
