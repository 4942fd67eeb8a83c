// Reads a YAML file as a list of assignments, without interpreting the values.
#pragma once
#include <trireme/config/value.h>
#include <filesystem>
#include <vector>

namespace trireme::config {

// Nested maps and dotted keys are equivalent: "model: {name: cnn}" and "model.name: cnn". Throws
// Error(not_found) if the file does not exist, and Error(invalid_argument) naming file and line
// for a syntax error, for a key given twice, or for an unknown key with the nearest known one.
std::vector<Assignment> read_yaml(const std::filesystem::path& file, const Table& table);

// Reads "key=value", which `option` of the command line gave. Throws Error(invalid_argument)
// naming the option and the text.
Assignment read_set(const std::string& option, const std::string& text, const Table& table);

}  // namespace trireme::config
