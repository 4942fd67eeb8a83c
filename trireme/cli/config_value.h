// The value of one key: from text into a Config, and from a Config to text or JSON.
#pragma once
#include <trireme/cli/config_keys.h>

namespace trireme::cli {

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
void set_value(Config& config, const Key& key, const Assignment& assignment);
void set_default(Config& config, const Key& key);
bool is_automatic(const Config& config, const Key& key);  // The value is `auto`.

// The value in the form that set_value() reads.
std::string value_as_text(const Config& config, const Key& key);
Json value_as_json(const Config& config, const Key& key);

}  // namespace trireme::cli
