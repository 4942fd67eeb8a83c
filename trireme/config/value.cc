#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/text.h>
#include <trireme/base/units.h>
#include <trireme/config/value.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace trireme::config {
namespace {

constexpr std::string_view kAuto = "auto";

std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 80;
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

// A place for values of a row, and where the text comes from that is read into it.
struct Target {
  const Table& table;
  void* options;
  const Row& row;
  const Assignment& assignment;

  std::string place() const { return assignment.origin.empty() ? "" : assignment.origin + ": "; }

  [[noreturn]] void refuse(const std::string& remedy = {}) const {
    const std::string usual = value_as_text(table.defaults(), row);
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("{}{} is \"{}\"; expected: {}", place(), row.name,
                            shortened(assignment.text), row.describe_type()),
                !remedy.empty() ? remedy
                : usual.empty() ? ""
                                : fmt::format("{}={} (the default)", row.name, usual));
  }
};

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

// An error of the text itself gets the place and the key in front.
void write_text(const Target& target, const TextForm& form, const std::string& text) {
  try {
    form.write(text);
  } catch (const Error& error) {
    const ErrorParts parts = parts_of(error);
    const std::string name(target.row.name);
    throw Error(error.code(), "config",
                target.place() + (parts.what.starts_with(name) ? "" : name + ": ") + parts.what,
                parts.remedy);
  }
}

template <typename Value>
void store(const Target& target, const Value& value) {
  const Slot slot = target.row.slot(target.options);
  if (const auto* form = std::get_if<TextForm>(&slot))
    return write_text(target, *form, fmt::format("{}", value));
  *std::get<Value*>(slot) = value;
}

// Whole numbers and three-state flags are stored in integers of several widths.
void store_whole(const Target& target, int64_t value) {
  const Slot slot = target.row.slot(target.options);
  if (int* const* narrow = std::get_if<int*>(&slot)) {
    if (!std::in_range<int>(value)) target.refuse();
    **narrow = static_cast<int>(value);
  } else if (uint64_t* const* natural = std::get_if<uint64_t*>(&slot)) {
    **natural = static_cast<uint64_t>(value);
  } else {
    *std::get<int64_t*>(slot) = value;
  }
}

void store_flag(const Target& target, bool value) {
  const Slot slot = target.row.slot(target.options);
  if (bool* const* flag = std::get_if<bool*>(&slot)) {
    **flag = value;
  } else {
    *std::get<int*>(slot) = value ? 1 : 0;
  }
}

void set_whole(const Target& target, std::optional<int64_t> value) {
  if (!value || !target.row.range.holds(static_cast<double>(*value))) target.refuse();
  store_whole(target, *value);
}

void set_number(const Target& target, std::string_view text) {
  const auto number = number_from<double>(text);
  if (!number || !std::isfinite(*number) || !target.row.range.holds(*number)) target.refuse();
  store(target, *number);
}

void set_choice(const Target& target, std::string_view text) {
  const std::vector<std::string> names = target.row.choices();
  if (std::find(names.begin(), names.end(), text) != names.end())
    return store(target, std::string(text));
  constexpr size_t kLongestWord = 64;
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string near =
      text.size() > kLongestWord ? "" : nearest_word(text, views.data(), views.size());
  target.refuse(near.empty() ? "" : fmt::format("{}={}", target.row.name, near));
}

void set_list(const Target& target, std::string_view text) {
  const auto entries = list_from(text);
  if (!entries) target.refuse();
  for (const int64_t entry : *entries) {
    if (!target.row.range.holds(static_cast<double>(entry))) target.refuse();
  }
  store(target, *entries);
}

// Sets a number with a unit. `parse` throws an error if it does not know the unit.
template <typename Parse>
void set_measure(const Target& target, Parse parse) {
  int64_t value = 0;
  try {
    value = parse();
  } catch (const Error&) {
    target.refuse();
  }
  if (!target.row.range.holds(static_cast<double>(value))) target.refuse();
  if (target.row.kind == Kind::duration) {
    *std::get<Milliseconds*>(target.row.slot(target.options)) = Milliseconds(value);
  } else {
    store_whole(target, value);
  }
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

// For reading only: the options have no const accessor of their own.
Slot slot_to_read(const void* options, const Row& row) {
  return row.slot(const_cast<void*>(options));
}

}  // namespace

void set_value(const Table& table, void* options, const Row& row, const Assignment& assignment) {
  const Target target{table, options, row, assignment};
  const std::string_view text = trimmed(assignment.text);
  const bool empty_is_meant = row.kind == Kind::text && assignment.is_quoted;
  if (text.empty() && !empty_is_meant) {
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("{}: {} has no value; expected: {}", assignment.origin, row.name,
                            row.describe_type()),
                fmt::format("give a value, or leave {} out", row.name));
  }
  if (assignment.is_list && row.kind != Kind::list) target.refuse();
  if (text == kAuto && row.kind == Kind::list) return store(target, std::vector<int64_t>{});
  if (text == kAuto && row.automatic) return store_whole(target, *row.automatic);

  switch (row.kind.value()) {
    case Kind::text: return store(target, assignment.text);
    case Kind::choice: return set_choice(target, text);
    case Kind::whole: return set_whole(target, number_from<int64_t>(text));
    case Kind::number: return set_number(target, text);
    case Kind::list: return set_list(target, text);
    case Kind::flag:
      if (const auto flag = flag_from(text)) return store_flag(target, *flag);
      target.refuse();
    case Kind::duration: return set_measure(target, [&] { return parse_duration(text).count(); });
    case Kind::bytes: return set_measure(target, [&] { return parse_bytes(text); });
  }
}

void set_default(const Table& table, void* options, const Row& row) {
  const Slot to = row.slot(options);
  std::visit(
      [&](const auto& from) {
        using Place = std::decay_t<decltype(from)>;
        if constexpr (std::is_same_v<Place, TextForm>) {
          std::get<TextForm>(to).write(from.read());
        } else {
          *std::get<Place>(to) = *from;
        }
      },
      slot_to_read(table.defaults(), row));
}

bool is_automatic(const void* options, const Row& row) {
  const Slot slot = slot_to_read(options, row);
  if (const auto* list = std::get_if<std::vector<int64_t>*>(&slot)) return (*list)->empty();
  if (!row.automatic) return false;
  if (const auto* narrow = std::get_if<int*>(&slot)) return **narrow == *row.automatic;
  return *std::get<int64_t*>(slot) == *row.automatic;
}

std::string value_as_text(const void* options, const Row& row) {
  const Json value = value_as_json(options, row);
  if (value.is_array()) return fmt::format("{}", value.get<std::vector<int64_t>>());
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  if (value.is_number() && row.kind == Kind::bytes) return bytes_text(value.get<int64_t>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Json value_as_json(const void* options, const Row& row) {
  if (is_automatic(options, row)) return kAuto;
  return std::visit(
      [&](const auto& slot) -> Json {
        using Place = std::decay_t<decltype(slot)>;
        if constexpr (std::is_same_v<Place, TextForm>) {
          if (row.kind == Kind::number) return number_from<double>(slot.read()).value();
          return slot.read();
        } else if constexpr (std::is_same_v<Place, Milliseconds*>) {
          return duration_text(slot->count());
        } else if constexpr (std::is_same_v<Place, int*>) {
          if (row.kind == Kind::flag) return *slot != 0;
          return *slot;
        } else {
          return *slot;
        }
      },
      slot_to_read(options, row));
}

void check_values(const Table& table, void* options) {
  for (const Row& row : table.rows()) {
    const bool any_value_fits = row.kind == Kind::text || row.kind == Kind::flag;
    if (any_value_fits || !row.in_file || is_automatic(options, row)) continue;
    set_value(table, options, row, {std::string(row.name), value_as_text(options, row), {}});
  }
}

}  // namespace trireme::config
