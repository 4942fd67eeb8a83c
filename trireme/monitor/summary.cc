#include <trireme/monitor/summary.h>

#include <fmt/format.h>
#include <trireme/base/units.h>
#include <trireme/monitor/event_json.h>
#include <trireme/monitor/text.h>
#include <cmath>

namespace trireme::monitor {
namespace {

// Reads the values that have the expected type, and leaves out all others.
class ReportReader {
 public:
  explicit ReportReader(const Json& report) : report_(report) {}

  const Json* find(const Json& object, const char* key) const {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  }
  std::optional<double> number(const char* key) const { return as_number(find(report_, key)); }
  std::optional<double> number(const char* group, const char* key) const {
    return as_number(inside(group, key));
  }
  std::string text(const char* key) const { return as_text(find(report_, key)); }
  std::string text(const char* group, const char* key) const {
    return as_text(inside(group, key));
  }

 private:
  const Json* inside(const char* group, const char* key) const {
    const Json* object = find(report_, group);
    return object ? find(*object, key) : nullptr;
  }
  static std::optional<double> as_number(const Json* value) {
    return value ? read_number(*value) : std::nullopt;
  }
  static std::string as_text(const Json* value) {
    return value && value->is_string() ? printable(value->get<std::string>()) : "";
  }

  const Json& report_;
};

std::string time_text(double seconds) {
  return format_duration(
      std::chrono::milliseconds(std::llround(std::clamp(seconds, 0.0, 1e12) * 1000)));
}
int64_t whole(double number) { return std::llround(std::clamp(number, -9e18, 9e18)); }

// A word that a shell takes literally, so that a reader can copy the command.
std::string shell_word(const std::string& text) {
  const auto harmless = [](unsigned char c) {
    return std::isalnum(c) || c >= 0x80 ||
           std::string_view("/._-+=:,@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), harmless)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string headline(const RunEnd& end, const ReportReader& report) {
  const auto steps = report.number("steps");
  if (end.stopped) {
    const std::string where = steps ? fmt::format("Stopped at step {}", whole(*steps)) : "Stopped";
    if (report.text("stop_reason") == "evaluator") return where + ", early, by the evaluator";
    if (report.text("stop_reason") == "early_stop") return where + ", early (early_stop)";
    return where + "; continue with the same command";
  }
  std::string line = "Finished";
  if (steps) line += " " + counted(whole(*steps), "step");
  if (const auto epochs = report.number("epochs"))
    line += fmt::format(" ({})", counted(whole(*epochs), "epoch"));
  if (const std::string strategy = report.text("strategy"); !strategy.empty())
    line += ", " + strategy;
  if (const auto workers = report.number("workers"))
    line += ", " + counted(whole(*workers), "worker");
  return line;
}

std::string accuracy_text(const ReportReader& report) {
  const auto accuracy = report.number("eval", "accuracy");
  if (!accuracy) return {};
  std::string text = fmt::format("{:.2f} % of the held-out samples", *accuracy * 100);
  if (const auto loss = report.number("eval", "loss"))
    text += fmt::format(" (loss {})", loss_text(*loss));
  return text;
}

std::string time_line(const ReportReader& report) {
  std::string text;
  if (const auto wall = report.number("wall_seconds")) text = time_text(*wall);
  if (const auto cpu = report.number("cpu_seconds"))
    text += fmt::format("{}CPU {}", text.empty() ? "" : ", ", time_text(*cpu));
  return text;
}

std::string cost_text(const ReportReader& report) {
  const auto cost = report.number("cost");
  if (!cost) return {};
  if (*cost == 0) return "0 (no price is set: cost.per_cpu_hour, cost.per_device_hour)";
  return fmt::format("{:.2g}", *cost);
}

std::string tensorboard_text(const ReportReader& report) {
  std::filesystem::path events = report.text("files", "events");
  if (events.empty()) return {};
  if (events.filename().string().starts_with("events.out.tfevents")) events = events.parent_path();
  return "tensorboard --logdir " + shell_word(events.empty() ? "." : events.string());
}

}  // namespace

std::vector<std::string> summary_lines(const RunEnd& end) {
  const ReportReader report(end.report);
  std::vector<std::string> lines{headline(end, report)};
  const auto add = [&](const char* label, const std::string& value) {
    if (!value.empty()) lines.push_back(fmt::format("  {:<13}{}", label, value));
  };
  add("accuracy", accuracy_text(report));
  if (const auto loss = report.number("train_loss")) add("train loss", loss_text(*loss));
  if (const auto rate = report.number("samples_per_second"))
    add("speed", rate_text(*rate) + " samples/s");
  add("input", report.text("input", "line"));
  add("time", time_line(report));
  if (const auto bytes = report.number("peak_pss_bytes"))
    add("memory", format_bytes(whole(*bytes)) + " at most");
  add("cost", cost_text(report));
  add("checkpoint", report.text("checkpoint"));
  add("report", report.text("files", "report"));
  add("log", report.text("files", "log"));
  add("TensorBoard", tensorboard_text(report));
  return lines;
}

}  // namespace trireme::monitor
