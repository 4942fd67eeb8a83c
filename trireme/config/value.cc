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

// A value of a row as text, and the place that it comes from.
struct GivenText {
  const Table& table;
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
  void require_choice(std::string_view text) const;
};

// The options into which a value is read.
struct Target : GivenText {
  void* options;
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
template <typename Whole>
void store_whole(const Target& target, Whole value) {
  const Slot slot = target.row.slot(target.options);
  const auto put = [&]<typename Place>(Place* place) {
    if (!std::in_range<Place>(value)) target.refuse();
    *place = static_cast<Place>(value);
  };
  if (int* const* narrow = std::get_if<int*>(&slot)) {
    put(*narrow);
  } else if (uint64_t* const* natural = std::get_if<uint64_t*>(&slot)) {
    put(*natural);
  } else {
    put(std::get<int64_t*>(slot));
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

template <typename Whole>
void set_whole(const Target& target, std::optional<Whole> value) {
  if (!value || !target.row.range.holds(static_cast<double>(*value))) target.refuse();
  store_whole(target, *value);
}

void set_number(const Target& target, std::string_view text) {
  const auto number = number_from<double>(text);
  if (!number || !target.row.range.holds(*number)) target.refuse();
  store(target, *number);
}

void GivenText::require_choice(std::string_view text) const {
  const std::vector<std::string> names = row.choices();
  if (std::find(names.begin(), names.end(), text) != names.end()) return;
  const std::vector<std::string> others = row.also ? row.also() : std::vector<std::string>();
  if (std::find(others.begin(), others.end(), text) != others.end()) return;
  constexpr size_t kLongestWord = 64;
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string near =
      text.size() > kLongestWord ? "" : nearest_word(text, views.data(), views.size());
  refuse(near.empty() ? "" : fmt::format("{}={}", row.name, near));
}

void set_choice(const Target& target, std::string_view text) {
  target.require_choice(text);
  store(target, std::string(text));
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

// JSON has no infinite numbers.
Json number_as_json(double number) {
  return std::isfinite(number) ? Json(number) : Json(fmt::format("{}", number));
}

// Whether the row's range holds the value, or each entry of a list.
bool is_in_range(const void* options, const Row& row) {
  const auto holds = [&row](auto number) { return row.range.holds(static_cast<double>(number)); };
  return std::visit(
      [&](const auto& slot) {
        using Place = std::decay_t<decltype(slot)>;
        if constexpr (std::is_same_v<Place, TextForm>) {
          const auto number = number_from<double>(slot.read());
          return number && holds(*number);
        } else if constexpr (std::is_same_v<Place, Milliseconds*>) {
          return holds(slot->count());
        } else if constexpr (std::is_same_v<Place, std::vector<int64_t>*>) {
          return std::all_of(slot->begin(), slot->end(), holds);
        } else if constexpr (std::is_same_v<Place, std::string*>) {
          return false;  // No row has a range of texts.
        } else {
          return holds(*slot);
        }
      },
      slot_to_read(options, row));
}

}  // namespace

void set_value(const Table& table, void* options, const Row& row, const Assignment& assignment) {
  const Target target{{table, row, assignment}, options};
  const std::string_view text = trimmed(assignment.text);
  // Only spaces are refused also in quotes: --set, which passes a value on, cannot give them.
  const bool is_quoted = row.kind == Kind::text && assignment.is_quoted;
  const bool empty_is_meant = is_quoted && assignment.text.empty();
  if (text.empty() && !empty_is_meant) {
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("{}: {} has {}; expected: {}", assignment.origin, row.name,
                            is_quoted ? "only spaces" : "no value", row.describe_type()),
                fmt::format("give a value, or leave {} out", row.name));
  }
  if (assignment.is_list && row.kind != Kind::list) target.refuse();
  if (text == kAuto && row.kind == Kind::list) return store(target, std::vector<int64_t>{});
  if (text == kAuto && row.automatic) return store_whole(target, *row.automatic);

  switch (row.kind.value()) {
    case Kind::text: return store(target, assignment.text);
    case Kind::choice: return set_choice(target, text);
    case Kind::whole:
      if (std::holds_alternative<uint64_t*>(row.slot(options)))
        return set_whole(target, number_from<uint64_t>(text));
      return set_whole(target, number_from<int64_t>(text));
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
          if (row.kind == Kind::number)
            return number_as_json(number_from<double>(slot.read()).value());
          return slot.read();
        } else if constexpr (std::is_same_v<Place, double*>) {
          return number_as_json(*slot);
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

void check_values(const Table& table, const void* options) {
  for (const Row& row : table.rows()) {
    const bool any_value_fits = row.kind == Kind::text || row.kind == Kind::flag;
    if (any_value_fits || !row.in_file || is_automatic(options, row)) continue;
    const Assignment value{std::string(row.name), value_as_text(options, row), {}};
    const GivenText given{table, row, value};
    if (row.kind == Kind::choice) {
      given.require_choice(value.text);
    } else if (!is_in_range(options, row)) {
      given.refuse();
    }
  }
}

}  // namespace trireme::config
