#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/text.h>
#include <trireme/base/units.h>
#include <trireme/train/expectations.h>
#include <algorithm>
#include <array>
#include <cmath>

namespace trireme {
namespace {

constexpr std::array<std::string_view, 2> kNames{"same-loss", "exactly-once"};

double allowed(size_t steps_since, bool is_float64) {
  if (is_float64) return 1e-10;
  constexpr double kFirst = 1e-5, kMost = 0.05;
  const double late = steps_since < 50 ? 0 : static_cast<double>(steps_since - 50) / 15;
  return std::min(kMost, kFirst * std::exp2(std::min(late, 100.0)));
}

}  // namespace

std::string_view to_string(Expectation expectation) {
  return kNames.at(static_cast<size_t>(expectation));
}

std::vector<Expectation> parse_expectations(std::string_view text) {
  std::vector<Expectation> expectations;
  if (trimmed(text).empty() || trimmed(text) == "none") return expectations;
  for (size_t from = 0; from <= text.size();) {
    const size_t end = std::min(text.find(',', from), text.size());
    const std::string_view name = trimmed(text.substr(from, end - from));
    const auto found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end()) {
      const std::string near = nearest_word(name, kNames.data(), kNames.size());
      throw Error(ErrorCode::invalid_argument, "inject",
                  fmt::format("'{}' is not an expectation", name),
                  near.empty() ? "same-loss, exactly-once" : near);
    }
    const auto expectation = static_cast<Expectation>(found - kNames.begin());
    if (std::find(expectations.begin(), expectations.end(), expectation) == expectations.end())
      expectations.push_back(expectation);
    from = end + 1;
  }
  return expectations;
}

std::string Finding::describe() const {
  return fmt::format("expected {}: {}: {}", to_string(expectation),
                     holds ? "holds" : "DOES NOT HOLD", what);
}
Json Finding::to_json() const {
  return {{"expected", to_string(expectation)}, {"holds", holds}, {"what", what}};
}

Finding same_loss(const Json& report, const Json& undisturbed, bool is_float64) {
  const Json& losses = report.at("loss_history");
  const Json& usual = undisturbed.at("loss_history");
  if (losses.size() != usual.size())
    return {Expectation::same_loss, false,
            fmt::format("{} steps, {} without faults", losses.size(), usual.size())};
  const double first =
      usual.empty() || !usual[0].is_number() ? 0 : std::abs(usual[0].get<double>());
  // The index of the first difference.
  size_t parted = losses.size();
  double largest = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    if (losses[i] == usual[i]) continue;
    parted = std::min(parted, i);
    const bool numbers = losses[i].is_number() && usual[i].is_number();
    const double a = numbers ? losses[i].get<double>() : NAN,
                 b = numbers ? usual[i].get<double>() : NAN;
    // A loss close to zero is no measure for its own difference, so the first
    // loss sets a lower limit.
    const double relative = std::abs(a - b) / std::max({std::abs(b), 0.01 * first, 1e-30}),
                 tolerance = allowed(i - parted, is_float64);
    if (!(relative <= tolerance))
      return {Expectation::same_loss, false,
              fmt::format("the loss of step {} is {}, without faults {}: a relative difference of "
                          "{:.2g}, where {:.2g} is allowed",
                          i + 1, losses[i].dump(), usual[i].dump(), relative, tolerance)};
    largest = std::max(largest, relative);
  }
  const std::string bits =
      report.value("parameters_sha256", "") == undisturbed.value("parameters_sha256", "-")
          ? ", parameters too"
          : "";
  const std::string what =
      parted == losses.size()
          ? fmt::format("{} losses, equal to the last bit{}", losses.size(), bits)
          : fmt::format("{} losses, from step {} on with relative differences up to {:.2g}",
                        losses.size(), parted + 1, largest);
  return {Expectation::same_loss, true, what};
}

Finding exactly_once(const Json& report) {
  if (!report.contains("samples"))
    return {Expectation::exactly_once, false, "the report says nothing about samples"};
  const Json& samples = report["samples"];
  const auto count = [&](const char* key) { return samples.value(key, int64_t{-1}); };
  const bool holds =
      count("lost") == 0 && count("repeated") == 0 && count("expected") == count("seen_once");
  return {Expectation::exactly_once, holds,
          fmt::format("{} uses of samples expected, {} seen once, {} lost, {} repeated",
                      count("expected"), count("seen_once"), count("lost"), count("repeated"))};
}

}  // namespace trireme
