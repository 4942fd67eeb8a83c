#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/config/row.h>
#include <cmath>

namespace trireme::config {

bool Range::holds(double value) const {
  if (std::isinf(value) && !takes_infinity) return false;
  return (least_excluded ? value > least : value >= least) &&
         (most_excluded ? value < most : value <= most);
}

std::string Range::describe() const {
  const bool has_least = least > -std::numeric_limits<double>::infinity();
  const bool has_most = most < std::numeric_limits<double>::infinity() && most != kLargestInt;
  if (has_least && has_most && !least_excluded && !most_excluded)
    return fmt::format("{} to {}", least, most);
  std::string text;
  if (has_least) text = fmt::format("{} {}", least_excluded ? "above" : "at least", least);
  if (has_most)
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ",
                        most_excluded ? "below" : "at most", most);
  if (takes_infinity) text += ", or inf";
  return text;
}

Choices one_of(std::vector<std::string> names) {
  return [names = std::move(names)] { return names; };
}

std::string Row::describe_type() const {
  const auto ranged = [this](std::string_view type) {
    const std::string limits = range.describe();
    return limits.empty() ? std::string(type) : fmt::format("{}, {}", type, limits);
  };
  std::string type;
  switch (kind.value()) {
    case Kind::text: return has_entries ? "list of maps" : "text";
    case Kind::choice: {
      const std::vector<std::string> names = choices();
      return fmt::format("{}{}", names.size() > 1 ? "one of " : "", fmt::join(names, ", "));
    }
    case Kind::flag: return automatic ? "true, false or auto" : "true or false";
    case Kind::whole: type = ranged("whole number"); break;
    case Kind::number: type = ranged("number"); break;
    case Kind::list: return ranged("list of whole numbers") + ", or auto";
    case Kind::duration: return "duration, such as 250ms or 5s";
    case Kind::bytes: return "bytes, such as 25MiB";
  }
  return automatic ? type + ", or auto" : type;
}

Rows joined(const Rows* members, size_t count) {
  Rows all;
  for (size_t i = 0; i < count; ++i) all.insert(all.end(), members[i].begin(), members[i].end());
  return all;
}

}  // namespace trireme::config
