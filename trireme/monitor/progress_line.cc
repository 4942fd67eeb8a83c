#include <fmt/format.h>
#include <trireme/monitor/progress_line.h>
#include <trireme/monitor/text.h>
#include <algorithm>
#include <array>

namespace trireme::monitor {
namespace {

constexpr int kWidestBar = 42;
constexpr double kWorthSaying = 0.1;

// The amount of detail in a line. For each width, the first of these layouts that fits is used.
struct Layout {
  int narrowest_bar;  // With its brackets. 0: no bar.
  // True: "step 12/460", "12,345 samples/s", "2 min 05 s left". False: "12/460", "12,345/s",
  // "2:05 left".
  bool words;
  bool speed = true;
  bool time_left = true;
};
constexpr std::array kLayouts = {
    Layout{12, true},
    Layout{6, false},
    Layout{0, false},
    Layout{0, false, false},
    Layout{0, false, false, false},
};

std::string of_total(int64_t number, int64_t total) {
  if (total <= 0) return fmt::format("{}", number);
  return fmt::format("{:>{}}/{}", number, fmt::formatted_size("{}", total), total);
}

std::string epoch_text(const ProgressView& view) {
  return "epoch " + of_total(view.epoch, view.epochs);
}

// The text to the right of the bar. Numbers that change from step to step are padded to their
// usual width, so that the bar keeps its length.
std::string figures(const ProgressView& view, const Layout& layout) {
  const char* gap = layout.words ? "  " : " ";
  const bool step_word = layout.words || view.total_steps <= 0;
  std::string text = (step_word ? "step " : "") + of_total(view.step, view.total_steps);
  if (view.loss) text += fmt::format("{}loss {:<6}", gap, loss_text(*view.loss));
  if (layout.speed && view.samples_per_second)
    text += fmt::format("{}{:>6}{}", gap, rate_text(*view.samples_per_second),
                        layout.words ? " samples/s" : "/s");
  if (layout.words && view.waited_share >= kWorthSaying)
    text += fmt::format("{}{:.0f} % without data", gap, view.waited_share * 100);
  if (layout.time_left && view.seconds_left)
    text += fmt::format(
        "{}{:>4} left", gap,
        layout.words ? countdown_text(*view.seconds_left) : short_countdown(*view.seconds_left));
  return text;
}

std::string bar(const ProgressView& view, int columns) {
  const int inner = columns - 2;
  const double done =
      std::clamp(static_cast<double>(view.step) / static_cast<double>(view.total_steps), 0.0, 1.0);
  const int filled = static_cast<int>(done * inner);
  std::string text = "[" + std::string(filled, '=');
  if (filled < inner) text += '>' + std::string(inner - filled - 1, ' ');
  return text + "]";
}

}  // namespace

std::string bar_line(const ProgressView& view, int width) {
  const int columns = std::max(width - 1, 1);
  const std::string epoch = epoch_text(view);
  for (const Layout& layout : kLayouts) {
    if (layout.narrowest_bar > 0 && view.total_steps > 0) {
      const std::string right = figures(view, layout);
      const int free = columns - static_cast<int>(epoch.size() + right.size()) - 2;
      if (free >= layout.narrowest_bar)
        return fmt::format("{} {} {}", epoch, bar(view, std::min(free, kWidestBar)), right);
    } else {
      const std::string line = fmt::format("{}  {}", epoch, figures(view, layout));
      if (static_cast<int>(line.size()) <= columns) return line;
    }
  }
  return fmt::format("{}  {}", epoch, figures(view, kLayouts.back())).substr(0, columns);
}

std::string plain_line(const ProgressView& view) {
  return fmt::format("{}  {}", epoch_text(view), figures(view, kLayouts.front()));
}

}  // namespace trireme::monitor
