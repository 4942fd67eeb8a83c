#include <trireme/monitor/text.h>

#include <fmt/format.h>
#include <trireme/base/units.h>
#include <algorithm>
#include <cmath>

namespace trireme::monitor {
namespace {
// A time so long that its seconds do not matter. The limit also keeps the conversions below in
// range.
constexpr double kLongestSeconds = 1e9;
int64_t whole_seconds(double seconds) {
  return std::llround(std::clamp(seconds, 0.0, kLongestSeconds));
}
}  // namespace

std::string loss_text(double loss) {
  const double size = std::abs(loss);
  if (size >= 999.95 && size < 9999.5) return fmt::format("{:.0f}", loss);
  // '#' keeps trailing zeros, so that the display does not jump from step to step.
  return fmt::format("{:#.4g}", loss);
}

std::string grouped(int64_t number) {
  std::string text = fmt::format("{}", number);
  const size_t first_digit = number < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first_digit + 3;) text.insert(at -= 3, ",");
  return text;
}

std::string rate_text(double per_second) {
  if (!std::isfinite(per_second) || per_second > 1e15) return fmt::format("{:.3g}", per_second);
  if (per_second >= 99.95) return grouped(std::llround(per_second));
  return fmt::format("{:.{}f}", per_second, per_second >= 9.995 ? 1 : 2);
}

std::string countdown_text(double seconds) {
  const int64_t whole = whole_seconds(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  return format_duration(std::chrono::seconds(whole));
}

std::string short_countdown(double seconds) {
  const int64_t whole = whole_seconds(seconds);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string counted(int64_t number, std::string_view thing) {
  return fmt::format("{} {}{}", grouped(number), thing, number == 1 ? "" : "s");
}

std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

}  // namespace trireme::monitor
