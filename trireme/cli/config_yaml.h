// Reads a YAML file as a list of assignments, without knowing what they mean.
#pragma once
#include <trireme/cli/config_value.h>
#include <filesystem>
#include <vector>

namespace trireme::cli {

// Nested maps and dotted keys give the same: "model: {name: cnn}" and "model.name: cnn". Throws
// Error(not_found) if there is no such file, Error(invalid_argument) naming file and line for a
// syntax error, a key given twice, or a key that is no key of a Config.
std::vector<Assignment> read_yaml(const std::filesystem::path& file);

// "key=value" of the command line. Throws Error(invalid_argument) naming the text.
Assignment read_set(const std::string& text);

// Throws Error(invalid_argument) naming `origin`, the key, and the nearest known one.
[[noreturn]] void refuse_unknown_key(const std::string& origin, const std::string& key);

}  // namespace trireme::cli
