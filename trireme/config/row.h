// Rows say everything about the keys of an option struct, and stand beside it. Reading a
// configuration, checks, documents, JSON and the comparison between ranks all use them.
//
//   struct GuardOptions {
//     int64_t window = 32;
//   };
//   config::Rows rows_of(const GuardOptions*);                       // in the header
//
//   config::Rows rows_of(const GuardOptions*) {                      // in the source
//     using O = GuardOptions;
//     return config::all_of<O>({config::row(&O::window, {.name = "guard.window", ...})});
//   }
//
// The default of a key is that of its member.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/config/fields.h>
#include <trireme/config/rows.h>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace trireme::config {

enum class Kind { text, choice, flag, whole, number, list, duration, bytes };

// A value that a struct keeps in another form than the key: as two members, or as an enum.
struct TextForm {
  std::function<std::string()> read;
  std::function<void(const std::string&)> write;  // Its errors say what is wrong with the text.
};

// The place where a value is stored. A flag in an int has three states.
using Slot = std::variant<std::string*, bool*, int*, int64_t*, uint64_t*, double*,
                          std::vector<int64_t>*, Milliseconds*, TextForm>;

// The upper limit that an int sets to a key. Messages and documents do not mention it.
inline constexpr double kLargestInt = std::numeric_limits<int>::max();

// The allowed values of a number, of each entry of a list, of milliseconds, or of bytes.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool least_excluded = false, most_excluded = false;
  bool takes_infinity = false;

  bool holds(double value) const;
  // "at least 1", "0 to 1", "above 0"; empty if every finite value is allowed.
  std::string describe() const;
};
inline Range at_least(double least) { return {.least = least}; }
inline Range at_least_or_infinite(double least) {
  return {.least = least, .takes_infinity = true};
}
inline Range above(double least) { return {.least = least, .least_excluded = true}; }
inline Range count_from(double least) { return {.least = least, .most = kLargestInt}; }
inline Range from_to(double least, double most) { return {.least = least, .most = most}; }
inline Range from_below(double least, double most) {
  return {.least = least, .most = most, .most_excluded = true};
}

// A key that has a meaning only while another key has one of these values. For example,
// model.channels is for model.name cnn.
struct OnlyFor {
  std::string_view selector;
  std::vector<std::string_view> values;
};

using Choices = std::function<std::vector<std::string>()>;
Choices one_of(std::vector<std::string> names);

struct Row {
  std::string_view name;  // "guard.window": a section and a word.
  std::string_view meaning;
  Range range{};
  // The values of a choice: one_of(), or the function of the registry that owns the names.
  Choices choices{};
  // Other words that a choice takes too. Messages and documents do not list them.
  Choices also{};
  // The number that is written as `auto`. For a list, `auto` is always the empty list.
  std::optional<int64_t> automatic{};
  OnlyFor only_for{};
  std::string_view joins{};  // A text that may be written as a list: this stands between entries.
  // A text that is written as a list of maps and kept as JSON. A word in them that is also a key
  // of the same section is written as that key is.
  bool has_entries = false;
  std::string_view instead_of{};  // A key that cannot be given together with this one.
  bool agreed = true;             // The value must be equal on all ranks.
  bool in_file = true;            // False: only programmes set it.
  std::optional<Kind> kind{};     // The kind, if it does not follow from the member's type.
  std::function<Slot(void*)> slot{};

  std::string describe_type() const;  // "whole number, at least 1, or auto"
};

template <typename Value>
Kind kind_of_member(const Row& row) {
  if (row.kind) return *row.kind;
  if (row.choices) return Kind::choice;
  if constexpr (std::is_same_v<Value, bool>) return Kind::flag;
  if constexpr (std::is_integral_v<Value>) return Kind::whole;
  if constexpr (std::is_same_v<Value, double>) return Kind::number;
  if constexpr (std::is_same_v<Value, std::vector<int64_t>>) return Kind::list;
  if constexpr (std::is_same_v<Value, Milliseconds>) return Kind::duration;
  return Kind::text;
}

// The row of a member.
template <typename Struct, typename Value>
Rows row(Value Struct::*member, Row row) {
  row.kind = kind_of_member<Value>(row);
  row.slot = [member](void* options) -> Slot { return &(static_cast<Struct*>(options)->*member); };
  return {std::move(row)};
}
// The row of a value that `read` and `write` turn into text and back.
template <typename Struct>
Rows row_as_text(std::string (*read)(const Struct&), void (*write)(Struct&, const std::string&),
                 Row row) {
  row.kind = kind_of_member<std::string>(row);
  row.slot = [read, write](void* options) -> Slot {
    auto& typed = *static_cast<Struct*>(options);
    return TextForm{[read, &typed] { return read(typed); },
                    [write, &typed](const std::string& text) { write(typed, text); }};
  };
  return {std::move(row)};
}
// A member that is no key: it belongs to the key of another member, or only programmes set it and
// the ranks need not agree.
template <typename Struct, typename Value>
Rows no_row(Value Struct::*) {
  return {};
}
// The rows of a member that is an option struct itself.
template <typename Struct, typename Part>
Rows part(Part Struct::*member) {
  Rows rows = rows_of(static_cast<const Part*>(nullptr));
  for (Row& row : rows)
    row.slot = [member, inner = std::move(row.slot)](void* options) {
      return inner(&(static_cast<Struct*>(options)->*member));
    };
  return rows;
}

Rows joined(const Rows* members, size_t count);
// The entries of some members, for a struct with many. all_of() takes such groups too.
template <typename... Entry>
std::array<Rows, sizeof...(Entry)> group(Entry... entries) {
  return {std::move(entries)...};
}
// All rows of a struct. Does not compile unless there is an entry for each member.
template <typename Struct, size_t count>
Rows all_of(const Rows (&members)[count]) {
  static_assert(count == count_fields<Struct>(), "each member of the struct needs a row");
  return joined(members, count);
}
template <typename Struct, size_t... counts>
Rows all_of(const std::array<Rows, counts>&... groups) {
  static_assert((counts + ...) == count_fields<Struct>(), "each member of the struct needs a row");
  const std::array<Rows, sizeof...(counts)> all{joined(groups.data(), counts)...};
  return joined(all.data(), all.size());
}

}  // namespace trireme::config
