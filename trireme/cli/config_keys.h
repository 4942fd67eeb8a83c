// The table of all configuration keys: what reading, printing, checking and documenting them share.
#pragma once
#include <trireme/cli/config.h>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

namespace trireme::cli {

enum class Kind { text, choice, flag, whole, number, list, duration, bytes };

// Where a key's value lives. A flag in an int* has three states.
using Slot = std::variant<std::string*, bool*, int*, int64_t*, double*, std::vector<int64_t>*,
                          Milliseconds*>;

// The upper limit that an int sets to a key. Messages and documents do not mention it.
inline constexpr double kLargestInt = std::numeric_limits<int>::max();

// The allowed values of a number (of every entry of a list; of milliseconds; of bytes).
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool least_excluded = false, most_excluded = false;

  bool holds(double value) const;
  std::string describe()
      const;  // "at least 1", "0 to 1", "above 0"; empty if everything is allowed.
};

// A key that means something only while another key has one of these values: model.channels, while
// model.name is cnn.
struct OnlyFor {
  std::string_view selector;
  std::vector<std::string_view> values;
};

struct Key {
  std::string_view name;
  Kind kind = Kind::text;
  Slot (*slot)(Config&) = nullptr;
  std::string_view meaning;
  Range range{};
  std::vector<std::string_view> choices{};  // Of Kind::choice.
  std::optional<int64_t>
      automatic{};  // The number that is written `auto`. For a list `auto` is always the empty one.
  OnlyFor only_for{};

  std::string describe_type() const;  // "whole number, at least 1, or auto"
};

std::vector<Key> make_key_table();  // The rows themselves (config_table.cc).
std::span<const Key> all_keys();
const Key* find_key(std::string_view name);  // Null if there is none.
bool is_section(std::string_view name);      // "model"
std::string nearest_key(
    std::string_view unknown_name);  // A key or section to propose; empty if none is near.

}  // namespace trireme::cli
