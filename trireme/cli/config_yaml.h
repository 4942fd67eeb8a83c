// Reads a YAML file as a list of assignments, without interpreting them.
#pragma once
#include <trireme/cli/config_value.h>
#include <filesystem>
#include <vector>

namespace trireme::cli {

// Nested maps and dotted keys are equivalent: "model: {name: cnn}" and "model.name: cnn". Throws
// Error(not_found) if the file does not exist, and Error(invalid_argument) naming file and line
// for a syntax error, for a key given twice, or for an unknown key.
std::vector<Assignment> read_yaml(const std::filesystem::path& file);

// Reads "key=value", which `option` of the command line gave. Throws Error(invalid_argument)
// naming the option and the text.
Assignment read_set(const std::string& option, const std::string& text);

// Throws Error(invalid_argument) naming `origin`, the key, and the nearest known one.
[[noreturn]] void refuse_unknown_key(const std::string& origin, const std::string& key);

}  // namespace trireme::cli
