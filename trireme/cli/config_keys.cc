#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/units.h>
#include <trireme/cli/config_keys.h>
#include <algorithm>

namespace trireme::cli {
namespace {

std::string_view section_of(std::string_view name) { return name.substr(0, name.find('.')); }
std::string_view last_part_of(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

bool Range::holds(double value) const {
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
  return text;
}

std::string Key::describe_type() const {
  const auto ranged = [this](std::string_view type) {
    const std::string limits = range.describe();
    return limits.empty() ? std::string(type) : fmt::format("{}, {}", type, limits);
  };
  std::string type;
  switch (kind) {
    case Kind::text: return "text";
    case Kind::choice:
      return fmt::format("{}{}", choices.size() > 1 ? "one of " : "", fmt::join(choices, ", "));
    case Kind::flag: return automatic ? "true, false or auto" : "true or false";
    case Kind::whole: type = ranged("whole number"); break;
    case Kind::number: type = ranged("number"); break;
    case Kind::list: return ranged("list of whole numbers") + ", or auto";
    case Kind::duration: return "duration, such as 250ms or 5s";
    case Kind::bytes: return "bytes, such as 25MiB";
  }
  return automatic ? type + ", or auto" : type;
}

std::span<const Key> all_keys() {
  static const std::vector<Key> table = make_key_table();
  return table;
}

const Key* find_key(std::string_view name) {
  const auto keys = all_keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const Key& key) { return key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

bool is_section(std::string_view name) {
  const auto keys = all_keys();
  return std::any_of(keys.begin(), keys.end(),
                     [&](const Key& key) { return section_of(key.name) == name; });
}

std::string nearest_key(std::string_view unknown_name) {
  constexpr size_t kLongestWord = 64;  // A longer word is never near, and the search is quadratic.
  if (unknown_name.size() > kLongestWord) return "";
  std::vector<std::string_view> names, last_parts;
  for (const Key& key : all_keys()) {
    names.push_back(key.name);
    last_parts.push_back(last_part_of(key.name));
  }
  // The right word without its section, or with a wrong one: "lr", "train.lr".
  const auto exact = std::find(last_parts.begin(), last_parts.end(), last_part_of(unknown_name));
  if (exact != last_parts.end() && !is_section(section_of(unknown_name)))
    return std::string(names[exact - last_parts.begin()]);
  if (const std::string near = nearest_word(unknown_name, names.data(), names.size());
      !near.empty())
    return near;
  if (exact != last_parts.end()) return std::string(names[exact - last_parts.begin()]);
  std::vector<std::string_view> sections;
  for (const std::string_view name : names) sections.push_back(section_of(name));
  if (const std::string near = nearest_word(unknown_name, sections.data(), sections.size());
      !near.empty())
    return near;
  const std::string near =
      nearest_word(last_part_of(unknown_name), last_parts.data(), last_parts.size());
  const auto found = std::find(last_parts.begin(), last_parts.end(), near);
  return found == last_parts.end() ? "" : std::string(names[found - last_parts.begin()]);
}

}  // namespace trireme::cli
