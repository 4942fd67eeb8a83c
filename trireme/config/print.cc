#include <fmt/format.h>

#include <trireme/config/print.h>
#include <algorithm>

namespace trireme::config {

std::vector<std::pair<std::string, std::string>> flatten(const Table& table, const void* options) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Row& row : table.rows())
    if (row.in_file) pairs.emplace_back(row.name, value_as_text(options, row));
  return pairs;
}

std::vector<std::string> to_settings(const Table& table, const void* options) {
  std::vector<std::string> settings;
  for (const Row& row : table.rows()) {
    if (!row.in_file) continue;
    const std::string value = value_as_text(options, row);
    // An empty text has the same meaning as the default (`none`), and --set accepts no empty text.
    if (value.empty() || value == value_as_text(table.defaults(), row)) continue;
    settings.push_back(fmt::format("{}={}", row.name, value));
  }
  return settings;
}

std::vector<std::pair<std::string, std::string>> agreed_values(const Table& table,
                                                               const void* options) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Row& row : table.rows())
    if (row.agreed) pairs.emplace_back(row.name, value_as_text(options, row));
  return pairs;
}

Json to_json(const Table& table, const void* options) {
  Json json;
  for (const Row& row : table.rows()) {
    if (!row.in_file) continue;
    const size_t dot = row.name.find('.');
    json[std::string(row.name.substr(0, dot))][std::string(row.name.substr(dot + 1))] =
        value_as_json(options, row);
  }
  return json;
}

std::string describe(const Table& table) {
  struct Line {
    std::string name, type, usual, meaning;
  };
  std::vector<Line> lines = {{"key", "type", "default", "meaning"}};
  for (const Row& row : table.rows()) {
    if (!row.in_file) continue;
    lines.push_back({std::string(row.name), row.describe_type(),
                     value_as_text(table.defaults(), row), std::string(row.meaning)});
  }
  size_t name_width = 0, type_width = 0, usual_width = 0;
  for (const Line& line : lines) {
    name_width = std::max(name_width, line.name.size());
    type_width = std::max(type_width, line.type.size());
    usual_width = std::max(usual_width, line.usual.size());
  }
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Line& line = lines[i];
    text += fmt::format("| {:<{}} | {:<{}} | {:<{}} | {} |\n", line.name, name_width, line.type,
                        type_width, line.usual, usual_width, line.meaning);
    if (i == 0) {
      text += fmt::format("|{:-<{}}|{:-<{}}|{:-<{}}|---------|\n", "", name_width + 2, "",
                          type_width + 2, "", usual_width + 2);
    }
  }
  return text;
}

}  // namespace trireme::config
