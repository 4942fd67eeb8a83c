#include <trireme/cli/config_keys.h>
#include <trireme/run/config.h>
#include <algorithm>

namespace trireme::cli {

std::string key_meant_by(std::string word) {
  std::ranges::replace(word, '-', '_');
  const config::Table& table = table_of_config();
  if (table.is_section(word)) return table.find(word + ".name") != nullptr ? word + ".name" : "";
  std::string near = table.nearest(word);
  // A word without its section is too short to be a typing error of a whole key.
  const bool has_section = word.find('.') != std::string::npos;
  return has_section || near.ends_with("." + word) ? near : "";
}

}  // namespace trireme::cli
