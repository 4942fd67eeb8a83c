#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/config/given.h>
#include <trireme/config/yaml.h>
#include <algorithm>

namespace trireme::config {
namespace {

// Options while they are read.
class Reading {
 public:
  Reading(const Table& table, void* options) : table_(table), options_(options) {}

  void apply(const Assignment& assignment, bool by_set) {
    const Row& row = *table_.find(assignment.key);
    set_value(table_, options_, row, assignment);
    if (is_automatic(options_, row)) {
      given_.erase(assignment.key);  // The same as a key that was not given.
    } else {
      given_[assignment.key] = {assignment.origin, by_set};
    }
  }

  void drop_overridden() {
    for (const Row& row : table_.rows()) {
      if (!by_file(row.name)) continue;
      const bool is_of_another_choice = by_set(row.only_for.selector) && !applies(row);
      if (!is_of_another_choice && !by_set(row.instead_of)) continue;
      set_default(table_, options_, row);
      given_.erase(given_.find(row.name));
    }
  }

  void refuse_keys_without_meaning() const {
    for (const Row& row : table_.rows()) {
      const auto found = given_.find(row.name);
      if (found == given_.end()) continue;
      if (!applies(row)) {
        const std::string_view selector = row.only_for.selector;
        refuse(found->second,
               fmt::format("{} is for {} {}, but {} is {}", row.name, selector,
                           fmt::join(row.only_for.values, ", "), selector, value_of(selector)),
               fmt::format("leave {} out, or {}={}", row.name, selector,
                           row.only_for.values.front()));
      }
      if (given_.contains(row.instead_of))
        refuse(found->second,
               fmt::format("{} is {} and {} is {}: only one of them can be given", row.name,
                           value_of(row.name), row.instead_of, value_of(row.instead_of)),
               "leave one out");
    }
  }

  GivenKeys take_given() { return std::move(given_); }

 private:
  bool by_file(std::string_view key) const {
    const auto found = given_.find(key);
    return found != given_.end() && !found->second.by_set;
  }
  bool by_set(std::string_view key) const {
    const auto found = given_.find(key);
    return found != given_.end() && found->second.by_set;
  }
  std::string value_of(std::string_view key) const {
    return value_as_text(options_, *table_.find(key));
  }
  bool applies(const Row& row) const {
    if (row.only_for.selector.empty()) return true;
    const auto& values = row.only_for.values;
    return std::find(values.begin(), values.end(), value_of(row.only_for.selector)) !=
           values.end();
  }
  [[noreturn]] static void refuse(const Given& given, const std::string& what,
                                  const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument, "config", given.origin + ": " + what, remedy);
  }

  const Table& table_;
  void* const options_;
  GivenKeys given_;
};

struct GivenAssignment {
  Assignment assignment;
  bool by_set = false;  // It is not of the file.
};

// In order: those of the file, of --set, and of the other options.
std::vector<GivenAssignment> assignments_of(const Source& source, const Table& table) {
  std::vector<GivenAssignment> all;
  if (!source.file.empty())
    for (Assignment& assignment : read_yaml(source.file, table))
      all.push_back({std::move(assignment), false});
  for (const std::string& text : source.set) all.push_back({read_set("--set", text, table), true});
  for (const auto& [option, text] : source.options)
    all.push_back({read_set(option, text, table), true});
  return all;
}

}  // namespace

std::string text_of(const Source& source, const Table& table, std::string_view key) {
  std::string text;
  for (const auto& [assignment, by_set] : assignments_of(source, table))
    if (assignment.key == key) text = assignment.text;
  return text;
}

GivenKeys read(const Source& source, const Table& table, void* options) {
  Reading reading(table, options);
  for (const auto& [assignment, by_set] : assignments_of(source, table))
    reading.apply(assignment, by_set);
  reading.drop_overridden();
  reading.refuse_keys_without_meaning();
  return reading.take_given();
}

void check_with_origins(const GivenKeys& given, const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    const ErrorParts parts = parts_of(error);
    const auto found = given.find(parts.what.substr(0, parts.what.find_first_of(" :")));
    const std::string from = found == given.end() ? "" : found->second.origin + ": ";
    throw Error(error.code(), "config", from + parts.what + more_lines_of(error), parts.remedy);
  }
}

}  // namespace trireme::config
