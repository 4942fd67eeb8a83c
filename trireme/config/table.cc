#include <trireme/base/units.h>
#include <trireme/config/table.h>
#include <algorithm>

namespace trireme::config {
namespace {

std::string_view section_of(std::string_view name) { return name.substr(0, name.find('.')); }
std::string_view last_part_of(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

const Row* Table::find(std::string_view name) const {
  const auto found = std::find_if(rows_.begin(), rows_.end(),
                                  [&](const Row& row) { return row.in_file && row.name == name; });
  return found == rows_.end() ? nullptr : &*found;
}

bool Table::is_section(std::string_view name) const {
  return std::any_of(rows_.begin(), rows_.end(),
                     [&](const Row& row) { return section_of(row.name) == name; });
}

std::string Table::nearest(std::string_view unknown_name) const {
  constexpr size_t kLongestWord = 64;  // A longer word is never near, and the search is quadratic.
  if (unknown_name.size() > kLongestWord) return "";
  std::vector<std::string_view> names, last_parts;
  for (const Row& row : rows_) {
    if (!row.in_file) continue;
    names.push_back(row.name);
    last_parts.push_back(last_part_of(row.name));
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

}  // namespace trireme::config
