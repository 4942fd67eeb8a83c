#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/config/yaml.h>
#include <map>

namespace trireme::config {
namespace {

[[noreturn]] void refuse_yaml(const std::string& origin, const std::string& what,
                              const std::string& remedy = {}) {
  throw Error(ErrorCode::invalid_argument, "config", origin + ": " + what, remedy);
}

[[noreturn]] void refuse_unknown_key(const Table& table, const std::string& origin,
                                     const std::string& key) {
  const std::string near = table.nearest(key);
  refuse_yaml(origin, fmt::format("there is no key \"{}\"", key),
              near.empty() ? "trireme train --keys, which lists all" : near);
}

class YamlReader {
 public:
  YamlReader(std::string file, const Table& table) : file_(std::move(file)), table_(table) {}

  std::vector<Assignment> read(const std::string& text) {
    const std::vector<YAML::Node> documents = parse(text);
    if (documents.size() > 1)
      refuse_yaml(at(documents[1].Mark()),
                  "a second YAML document begins here, but a configuration is one",
                  "remove the line ---");
    if (documents.empty() || documents[0].IsNull()) return {};
    if (!documents[0].IsMap())
      refuse_yaml(at(documents[0].Mark()), "this is not a list of keys and values",
                  "lines such as data.batch: 64");
    read_map(documents[0], "");
    return std::move(assignments_);
  }

  // The value of --set for a key with entries: the same list in one line.
  std::string entries_in(const std::string& text, const Row& row, const std::string& origin) {
    const std::vector<YAML::Node> documents = parse(text);
    return entries_of(documents.empty() ? YAML::Node() : documents[0], row, origin);
  }

 private:
  std::vector<YAML::Node> parse(const std::string& text) const {
    try {
      return YAML::LoadAll(text);
    } catch (const YAML::Exception& error) {
      refuse_yaml(at(error.mark), fmt::format("not valid YAML: {}", error.msg),
                  "check indentation, colons and brackets near this line");
    }
  }

  void read_map(const YAML::Node& map, const std::string& prefix) {
    for (const auto& entry : map) {
      const std::string origin = at(entry.first.Mark());
      if (!entry.first.IsScalar())
        refuse_yaml(origin, "a key must be a word", "lines such as data.batch: 64");
      const std::string key = prefix + entry.first.Scalar();
      const auto [earlier, is_new] = seen_.emplace(key, origin);
      if (!is_new)
        refuse_yaml(origin, fmt::format("{} was given before, at {}", key, earlier->second),
                    "keep one of the two");
      read_entry(entry.second, key, origin);
    }
  }

  void read_entry(const YAML::Node& value, const std::string& key, const std::string& origin) {
    if (table_.is_section(key)) {
      if (value.IsMap()) return read_map(value, key + ".");
      if (value.IsNull()) return;
      refuse_yaml(origin,
                  fmt::format("{} is a section of keys, but has the value \"{}\"", key,
                              text_of(value, key, origin)),
                  fmt::format("{}.name or another key of {}", key, key));
    }
    const Row* known = table_.find(key);
    if (known == nullptr) refuse_unknown_key(table_, origin, key);
    if (value.IsMap())
      refuse_yaml(origin,
                  fmt::format("{} has keys below it; expected: {}", key, known->describe_type()));
    if (known->has_entries) {
      assignments_.push_back({key, entries_of(value, *known, origin), origin, false, false});
      return;
    }
    if (!known->joins.empty() && value.IsSequence()) {
      assignments_.push_back({key, joined(value, *known, origin), origin, false, false});
      return;
    }
    assignments_.push_back(
        {key, text_of(value, key, origin), origin, value.IsSequence(), value.Tag() == "!"});
  }

  // Every value becomes a text, a list of texts, or a map of texts.
  std::string entries_of(const YAML::Node& list, const Row& row, const std::string& origin) const {
    if (!list.IsSequence() || list.size() == 0)
      refuse_entries(row, origin, "is not a list of maps");
    const std::string section(row.name.substr(0, row.name.find('.') + 1));
    Json entries = Json::array();
    for (const auto& entry : list) {
      if (!entry.IsMap()) refuse_entries(row, origin, "has an entry that is not a map");
      Json& made = entries.emplace_back(Json::object());
      for (const auto& pair : entry) {
        const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : "";
        if (name.empty() || made.contains(name))
          refuse_entries(row, origin,
                         name.empty() ? "has a key that is not a word"
                                      : fmt::format("has {} twice in one entry", name));
        const Row* const of_section = table_.find(section + name);
        const bool is_joined =
            of_section && !of_section->joins.empty() && pair.second.IsSequence();
        made[name] = is_joined ? Json(joined(pair.second, *of_section, origin))
                               : texts_of(pair.second, row, origin);
      }
    }
    return entries.dump();
  }

  static Json texts_of(const YAML::Node& value, const Row& row, const std::string& origin) {
    Json texts;
    if (value.IsScalar()) return value.Scalar();
    for (const auto& each : value) {
      const YAML::Node& inner = value.IsMap() ? each.second : each;
      if (!inner.IsScalar() || (value.IsMap() && !each.first.IsScalar()))
        refuse_entries(row, origin, "has a value with lists or maps inside");
      if (value.IsMap())
        texts[each.first.Scalar()] = inner.Scalar();
      else
        texts.push_back(inner.Scalar());
    }
    if (texts.is_null()) refuse_entries(row, origin, "has a key without a value");
    return texts;
  }

  [[noreturn]] static void refuse_entries(const Row& row, const std::string& origin,
                                          const std::string& what) {
    refuse_yaml(origin, fmt::format("{} {}", row.name, what),
                "a list of maps, as in docs/input.md");
  }

  // An entry is a text, a name with its first value, or a name with named values:
  //   - flip
  //   - resize: 32
  //   - random_resized_crop: {size: 32, scale: "0.8:1"}
  static std::string joined(const YAML::Node& list, const Row& row, const std::string& origin) {
    std::string text;
    for (const auto& entry : list) {
      text += text.empty() ? "" : row.joins;
      if (entry.IsScalar()) {
        text += entry.Scalar();
        continue;
      }
      if (!entry.IsMap() || entry.size() != 1)
        refuse_yaml(origin,
                    fmt::format("{} has an entry that is neither a name nor a name with "
                                "values",
                                row.name),
                    "entries such as \"- flip\" and \"- resize: 32\"");
      const auto one = *entry.begin();
      text += one.first.Scalar() + "(" + values_of(one.second, row, origin) + ")";
    }
    return text;
  }

  static std::string values_of(const YAML::Node& values, const Row& row,
                               const std::string& origin) {
    if (values.IsNull()) return "";
    if (values.IsScalar() || values.IsSequence()) return numbers_of(values, row, origin);
    std::string text;
    for (const auto& value : values)
      text += (text.empty() ? "" : ", ") + value.first.Scalar() + "=" +
              numbers_of(value.second, row, origin);
    return text;
  }

  // [0.8, 1] is 0.8:1.
  static std::string numbers_of(const YAML::Node& value, const Row& row,
                                const std::string& origin) {
    if (value.IsScalar()) return value.Scalar();
    std::string text;
    for (const auto& number : value) {
      if (!number.IsScalar())
        refuse_yaml(origin, fmt::format("{} has a value that is a list of lists", row.name),
                    "a list of numbers, such as [0.8, 1]");
      text += (text.empty() ? "" : ":") + number.Scalar();
    }
    return text;
  }

  static std::string text_of(const YAML::Node& value, const std::string& key,
                             const std::string& origin) {
    if (!value.IsSequence()) return value.IsScalar() ? value.Scalar() : "";
    std::string list;
    for (const auto& entry : value) {
      if (!entry.IsScalar())
        refuse_yaml(origin, fmt::format("{} has an entry that is not one value", key),
                    "a list such as [16, 32]");
      list += (list.empty() ? "" : ", ") + entry.Scalar();
    }
    return "[" + list + "]";
  }

  std::string at(const YAML::Mark& mark) const {
    return mark.line < 0 ? file_ : fmt::format("{}:{}", file_, mark.line + 1);
  }

  std::string file_;
  const Table& table_;
  std::map<std::string, std::string> seen_;  // The place of every key and section, by full name.
  std::vector<Assignment> assignments_;
};

}  // namespace

std::vector<Assignment> read_yaml(const std::filesystem::path& file, const Table& table) {
  std::error_code status;
  if (!std::filesystem::exists(file, status)) {
    throw Error(ErrorCode::not_found, "config",
                fmt::format("there is no configuration file {}", file.string()),
                "examples/digits.yaml");
  }
  if (std::filesystem::is_directory(file, status)) {
    throw Error(ErrorCode::not_found, "config",
                fmt::format("{} is a folder, not a configuration file", file.string()),
                "the name of a .yaml file in it");
  }
  return YamlReader(file.string(), table).read(read_file(file));
}

Assignment read_set(const std::string& option, const std::string& text, const Table& table) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    refuse_yaml(option, fmt::format("\"{}\" is not of the form key=value", text),
                "--set data.batch=64");
  }
  std::string key = text.substr(0, equals);
  key.erase(key.find_last_not_of(' ') + 1);
  if (table.is_section(key)) {
    refuse_yaml(option,
                fmt::format("{} is a section of keys, but was given the value \"{}\"", key,
                            text.substr(equals + 1)),
                fmt::format("--set {}.name={}", key, text.substr(equals + 1)));
  }
  const Row* const row = table.find(key);
  if (row == nullptr) refuse_unknown_key(table, option, key);
  std::string value = text.substr(equals + 1);
  if (row->has_entries) value = YamlReader(option, table).entries_in(value, *row, option);
  return {key, std::move(value), option};
}

}  // namespace trireme::config
