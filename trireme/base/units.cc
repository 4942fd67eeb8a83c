#include <trireme/base/units.h>

#include <fmt/format.h>
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace trireme {
namespace {

struct Unit {
  std::string_view name;
  int64_t factor;
};
constexpr std::array<Unit, 4> kDurations = {
    {{"ms", 1}, {"s", 1000}, {"min", 60'000}, {"h", 3'600'000}}};
constexpr std::array<Unit, 10> kSizes = {{{"", 1},
                                          {"B", 1},
                                          {"KB", 1000},
                                          {"MB", 1'000'000},
                                          {"GB", 1'000'000'000},
                                          {"TB", 1'000'000'000'000},
                                          {"KiB", int64_t{1} << 10},
                                          {"MiB", int64_t{1} << 20},
                                          {"GiB", int64_t{1} << 30},
                                          {"TiB", int64_t{1} << 40}}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Reads "12.5KB" as 12500. The whole part and the fraction are read separately, so that a large
// whole number keeps all its digits. Returns `too_large` for a value that does not fit.
std::optional<int64_t> parse_with_unit(std::string_view text, std::span<const Unit> units,
                                       std::optional<int64_t> too_large) {
  const auto number_end =
      std::find_if(text.begin(), text.end(), [](char c) { return !is_digit(c) && c != '.'; });
  const std::string_view number(text.begin(), number_end);
  std::string_view unit(number_end, text.end());
  if (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  const auto known =
      std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == unit; });
  if (known == units.end()) return std::nullopt;

  const auto dot = number.find('.');
  const std::string_view whole = number.substr(0, dot);
  const std::string_view decimals =
      dot == std::string_view::npos ? std::string_view() : number.substr(dot + 1);
  const bool well_formed = !whole.empty() &&
                           (dot == std::string_view::npos || !decimals.empty()) &&
                           std::all_of(decimals.begin(), decimals.end(), is_digit);
  if (!well_formed) return std::nullopt;

  int64_t value = 0;
  if (std::from_chars(whole.data(), whole.data() + whole.size(), value).ec != std::errc())
    return too_large;  // The text has digits only, so no other error is possible.
  double fraction = 0;
  for (size_t i = decimals.size(); i-- > 0;) fraction = (fraction + (decimals[i] - '0')) / 10;
  const auto rest =
      static_cast<int64_t>(std::llround(fraction * static_cast<double>(known->factor)));
  if (__builtin_mul_overflow(value, known->factor, &value) ||
      __builtin_add_overflow(value, rest, &value))
    return too_large;
  return value;
}

// Optimal string alignment: insertions, deletions, replacements and swaps of neighbours cost one
// each.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::chrono::milliseconds parse_duration(std::string_view text) {
  if (const auto value = parse_with_unit(text, kDurations, std::numeric_limits<int64_t>::max()))
    return saturated(Milliseconds(*value));
  throw Error(ErrorCode::invalid_argument, "base", fmt::format("'{}' is not a duration", text),
              "a number with ms, s, min or h, such as 250ms or 1.5h");
}

int64_t parse_bytes(std::string_view text) {
  if (const auto value = parse_with_unit(text, kSizes, std::nullopt)) return *value;
  throw Error(ErrorCode::invalid_argument, "base",
              fmt::format("'{}' is not a number of bytes", text),
              "a number alone or with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 25MB");
}

std::string format_duration(std::chrono::milliseconds duration) {
  // The value can be rounded up without overflow.
  constexpr Milliseconds kMost(std::numeric_limits<int64_t>::max() / 2);
  duration = std::clamp(duration, -kMost, kMost);
  const int64_t ms = duration.count();
  if (ms < 0) return "-" + format_duration(-duration);
  if (ms < 1000) return fmt::format("{} ms", ms);
  // The value is rounded before the unit is chosen: 59.96 s is a minute, not "60.0 s".
  if (const int64_t tenths = (ms + 50) / 100; tenths < 600)
    return fmt::format("{}.{} s", tenths / 10, tenths % 10);
  if (const int64_t seconds = (ms + 500) / 1000; seconds < 3600)
    return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
  const int64_t minutes = (ms + 30'000) / 60'000;
  return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
}

std::string format_bytes(int64_t bytes) {
  if (bytes < 0)
    return "-" + format_bytes(bytes == std::numeric_limits<int64_t>::min()
                                  ? std::numeric_limits<int64_t>::max()
                                  : -bytes);
  if (bytes < 1000) return fmt::format("{} B", bytes);
  constexpr std::array<std::string_view, 6> kNames = {"KB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kNames.size()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kNames[unit]);
}

std::string nearest_word(std::string_view word, const std::string_view* known, size_t count) {
  std::string_view nearest;
  size_t nearest_distance = std::numeric_limits<size_t>::max();
  for (const std::string_view candidate : std::span(known, count)) {
    const size_t longer = std::max(word.size(), candidate.size());
    const size_t distance = edit_distance(word, candidate);
    // A near word is a typing error, not another word: it has one edit, or one in three letters,
    // and keeps at least one letter of the original.
    const bool near = distance <= std::max<size_t>(1, longer / 3) && distance < longer;
    if (near && distance < nearest_distance) {
      nearest = candidate;
      nearest_distance = distance;
    }
  }
  return std::string(nearest);
}

}  // namespace trireme
