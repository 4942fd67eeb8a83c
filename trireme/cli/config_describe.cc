#include <fmt/format.h>

#include <trireme/cli/config_value.h>
#include <algorithm>

namespace trireme::cli {

std::vector<std::pair<std::string, std::string>> flatten(const Config& config) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Key& key : all_keys()) pairs.emplace_back(key.name, value_as_text(config, key));
  return pairs;
}

std::vector<std::string> to_settings(const Config& config) {
  std::vector<std::string> settings;
  for (const Key& key : all_keys()) {
    const std::string value = value_as_text(config, key);
    // An empty text has the same meaning as the default (`none`), and --set accepts no empty text.
    if (value.empty() || value == value_as_text(Config{}, key)) continue;
    settings.push_back(fmt::format("{}={}", key.name, value));
  }
  return settings;
}

Json to_json(const Config& config) {
  Json json;
  for (const Key& key : all_keys()) {
    const size_t dot = key.name.find('.');
    json[std::string(key.name.substr(0, dot))][std::string(key.name.substr(dot + 1))] =
        value_as_json(config, key);
  }
  return json;
}

std::string describe_keys() {
  struct Row {
    std::string name, type, usual, meaning;
  };
  std::vector<Row> rows = {{"key", "type", "default", "meaning"}};
  for (const Key& key : all_keys()) {
    rows.push_back({std::string(key.name), key.describe_type(), value_as_text(Config{}, key),
                    std::string(key.meaning)});
  }
  size_t name_width = 0, type_width = 0, usual_width = 0;
  for (const Row& row : rows) {
    name_width = std::max(name_width, row.name.size());
    type_width = std::max(type_width, row.type.size());
    usual_width = std::max(usual_width, row.usual.size());
  }
  std::string table;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    table += fmt::format("| {:<{}} | {:<{}} | {:<{}} | {} |\n", row.name, name_width, row.type,
                         type_width, row.usual, usual_width, row.meaning);
    if (i == 0) {
      table += fmt::format("|{:-<{}}|{:-<{}}|{:-<{}}|---------|\n", "", name_width + 2, "",
                           type_width + 2, "", usual_width + 2);
    }
  }
  return table;
}

}  // namespace trireme::cli
