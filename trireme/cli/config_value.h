// One key's value: text into a Config, and a Config's value as text or JSON.
#pragma once
#include <trireme/cli/config_keys.h>

namespace trireme::cli {

// One "key: value" as it was written, and where.
struct Assignment {
  std::string key;
  std::string text;        // A list as "[16, 32]".
  std::string origin;      // "run.yaml:12" or "--set"
  bool is_list = false;    // Written as a YAML list.
  bool is_quoted = false;  // An empty text is meant, not forgotten.
};

// Throws Error(invalid_argument) naming origin, key, value and rule if the text has the wrong type
// or the value is out of range.
void set_value(Config& config, const Key& key, const Assignment& assignment);
void set_default(Config& config, const Key& key);
bool is_automatic(const Config& config, const Key& key);  // Left to the program: `auto`.

std::string value_as_text(const Config& config,
                          const Key& key);  // In the form that set_value() reads.
Json value_as_json(const Config& config, const Key& key);

}  // namespace trireme::cli
