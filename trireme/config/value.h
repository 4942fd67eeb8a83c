// The value of one key: from text into an option struct, and from the struct to text or JSON.
#pragma once
#include <trireme/base/json.h>
#include <trireme/config/table.h>

namespace trireme::config {

// One "key: value" as it was written, and its place.
struct Assignment {
  std::string key;
  std::string text;        // A list is written as "[16, 32]".
  std::string origin;      // "run.yaml:12", or the option: "--set"
  bool is_list = false;    // The value was written as a YAML list.
  bool is_quoted = false;  // An empty text was written on purpose.
};

// Throws Error(invalid_argument) naming origin, key, value and rule if the text has the wrong type
// or the value is out of range.
void set_value(const Table& table, void* options, const Row& row, const Assignment& assignment);
void set_default(const Table& table, void* options, const Row& row);
bool is_automatic(const void* options, const Row& row);  // The value is `auto`.

// The value in the form that set_value() reads.
std::string value_as_text(const void* options, const Row& row);
Json value_as_json(const void* options, const Row& row);

// Throws Error(invalid_argument) naming key, value and rule if a value breaks its row's rule. For
// options that a programme has set.
void check_values(const Table& table, const void* options);
template <typename Options>
void check_values(const Options& options) {
  check_values(table_of<Options>(), &options);
}

}  // namespace trireme::config
