#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/text.h>
#include <trireme/base/units.h>
#include <trireme/cli/config_value.h>
#include <array>
#include <charconv>

namespace trireme::cli {
namespace {

constexpr std::string_view kAuto = "auto";

std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 80;
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

[[noreturn]] void refuse(const Key& key, const Assignment& assignment,
                         const std::string& remedy = {}) {
  const std::string usual = value_as_text(Config{}, key);
  throw Error(ErrorCode::invalid_argument, "config",
              fmt::format("{}: {} is \"{}\"; expected: {}", assignment.origin, key.name,
                          shortened(assignment.text), key.describe_type()),
              !remedy.empty() ? remedy
              : usual.empty() ? ""
                              : fmt::format("{}={} (the default)", key.name, usual));
}

template <typename Number>
std::optional<Number> number_from(std::string_view text) {
  Number number{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<bool> flag_from(std::string_view text) {
  for (const std::string_view word : {"true", "True", "yes", "on"}) {
    if (text == word) return true;
  }
  for (const std::string_view word : {"false", "False", "no", "off"}) {
    if (text == word) return false;
  }
  return std::nullopt;
}

// Reads "[16, 32]", "16,32" and "16". Empty if any entry is not a whole number.
std::optional<std::vector<int64_t>> list_from(std::string_view text) {
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']')
    text = text.substr(1, text.size() - 2);
  std::vector<int64_t> entries;
  while (true) {
    const size_t comma = text.find(',');
    const auto entry = number_from<int64_t>(trimmed(text.substr(0, comma)));
    if (!entry) return std::nullopt;
    entries.push_back(*entry);
    if (comma == std::string_view::npos) return entries;
    text = text.substr(comma + 1);
  }
}

template <typename Value>
void store(Config& config, const Key& key, const Value& value) {
  *std::get<Value*>(key.slot(config)) = value;
}

// Whole numbers and three-state flags are stored in an int or an int64_t.
void store_whole(Config& config, const Key& key, int64_t value) {
  const Slot slot = key.slot(config);
  if (int* const* narrow = std::get_if<int*>(&slot)) {
    **narrow = static_cast<int>(value);
  } else {
    *std::get<int64_t*>(slot) = value;
  }
}

void store_flag(Config& config, const Key& key, bool value) {
  const Slot slot = key.slot(config);
  if (bool* const* flag = std::get_if<bool*>(&slot)) {
    **flag = value;
  } else {
    *std::get<int*>(slot) = value ? 1 : 0;
  }
}

void set_whole(Config& config, const Key& key, const Assignment& assignment,
               std::optional<int64_t> value) {
  const bool narrow = std::holds_alternative<int*>(key.slot(config));
  if (!value || !key.range.holds(static_cast<double>(*value)) ||
      (narrow && !std::in_range<int>(*value)))
    refuse(key, assignment);
  store_whole(config, key, *value);
}

void set_choice(Config& config, const Key& key, const Assignment& assignment,
                std::string_view text) {
  for (const std::string_view choice : key.choices) {
    if (text == choice) return store(config, key, std::string(text));
  }
  constexpr size_t kLongestWord = 64;
  const std::string near =
      text.size() > kLongestWord ? "" : nearest_word(text, key.choices.data(), key.choices.size());
  refuse(key, assignment, near.empty() ? "" : fmt::format("{}={}", key.name, near));
}

// Sets a number with a unit. `parse` throws an error if it does not know the unit.
template <typename Parse>
void set_measure(Config& config, const Key& key, const Assignment& assignment, Parse parse) {
  int64_t value = 0;
  try {
    value = parse();
  } catch (const Error&) {
    refuse(key, assignment);
  }
  if (!key.range.holds(static_cast<double>(value))) refuse(key, assignment);
  if (key.kind == Kind::duration) return store(config, key, Milliseconds(value));
  store_whole(config, key, value);
}

std::string duration_text(int64_t milliseconds) {
  return milliseconds % 1000 == 0 ? fmt::format("{}s", milliseconds / 1000)
                                  : fmt::format("{}ms", milliseconds);
}

std::string bytes_text(int64_t bytes) {
  struct Unit {
    int64_t factor;
    std::string_view name;
  };
  for (const Unit unit : std::array<Unit, 3>{
           {{int64_t{1} << 30, "GiB"}, {int64_t{1} << 20, "MiB"}, {int64_t{1} << 10, "KiB"}}}) {
    if (bytes > 0 && bytes % unit.factor == 0)
      return fmt::format("{}{}", bytes / unit.factor, unit.name);
  }
  return fmt::format("{}", bytes);
}

// The slot of a key, for reading only: a Config has no const accessor of its own.
Slot slot_of(const Config& config, const Key& key) {
  return key.slot(const_cast<Config&>(config));
}

}  // namespace

void set_value(Config& config, const Key& key, const Assignment& assignment) {
  const std::string_view text = trimmed(assignment.text);
  const bool empty_is_meant = key.kind == Kind::text && assignment.is_quoted;
  if (text.empty() && !empty_is_meant) {
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("{}: {} has no value; expected: {}", assignment.origin, key.name,
                            key.describe_type()),
                fmt::format("give a value, or leave {} out", key.name));
  }
  if (assignment.is_list && key.kind != Kind::list) refuse(key, assignment);
  if (text == kAuto && key.kind == Kind::list) return store(config, key, std::vector<int64_t>{});
  if (text == kAuto && key.automatic) return store_whole(config, key, *key.automatic);

  switch (key.kind) {
    case Kind::text: return store(config, key, assignment.text);
    case Kind::choice: return set_choice(config, key, assignment, text);
    case Kind::whole: return set_whole(config, key, assignment, number_from<int64_t>(text));
    case Kind::flag:
      if (const auto flag = flag_from(text)) return store_flag(config, key, *flag);
      refuse(key, assignment);
    case Kind::number: {
      const auto number = number_from<double>(text);
      if (!number || !std::isfinite(*number) || !key.range.holds(*number)) refuse(key, assignment);
      return store(config, key, *number);
    }
    case Kind::list: {
      const auto entries = list_from(text);
      if (!entries) refuse(key, assignment);
      for (const int64_t entry : *entries) {
        if (!key.range.holds(static_cast<double>(entry))) refuse(key, assignment);
      }
      return store(config, key, *entries);
    }
    case Kind::duration:
      return set_measure(config, key, assignment, [&] { return parse_duration(text).count(); });
    case Kind::bytes:
      return set_measure(config, key, assignment, [&] { return parse_bytes(text); });
  }
}

void set_default(Config& config, const Key& key) {
  Config defaults;
  std::visit([&](auto* from) { *std::get<decltype(from)>(key.slot(config)) = *from; },
             key.slot(defaults));
}

bool is_automatic(const Config& config, const Key& key) {
  const Slot slot = slot_of(config, key);
  if (const auto* list = std::get_if<std::vector<int64_t>*>(&slot)) return (*list)->empty();
  if (!key.automatic) return false;
  if (const auto* narrow = std::get_if<int*>(&slot)) return **narrow == *key.automatic;
  return *std::get<int64_t*>(slot) == *key.automatic;
}

std::string value_as_text(const Config& config, const Key& key) {
  const Json value = value_as_json(config, key);
  if (value.is_array()) return fmt::format("{}", value.get<std::vector<int64_t>>());
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  if (value.is_number() && key.kind == Kind::bytes) return bytes_text(value.get<int64_t>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Json value_as_json(const Config& config, const Key& key) {
  if (is_automatic(config, key)) return kAuto;
  return std::visit(
      [&](const auto* slot) -> Json {
        using Value = std::decay_t<decltype(*slot)>;
        if constexpr (std::is_same_v<Value, Milliseconds>) {
          return duration_text(slot->count());
        } else if constexpr (std::is_same_v<Value, int>) {
          if (key.kind == Kind::flag) return *slot != 0;
          return *slot;
        } else {
          return *slot;
        }
      },
      slot_of(config, key));
}

}  // namespace trireme::cli
