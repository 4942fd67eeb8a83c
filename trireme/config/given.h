// Fills an option struct from a file and from settings of the command line.
#pragma once
#include <trireme/config/value.h>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trireme::config {

struct Source {
  std::filesystem::path file;    // It may be empty; then only defaults hold.
  std::vector<std::string> set;  // "key=value", in order; applied after the file.
  // Other options of the command line that set a key: their names, and "key=value". They are
  // applied last.
  std::vector<std::pair<std::string, std::string>> options;
};

// The origin of a key's value. A key without an entry has its default.
struct Given {
  std::string origin;   // "run.yaml:12", or the option: "--set"
  bool by_set = false;  // An option of the command line gave it.
};
using GivenKeys = std::map<std::string, Given, std::less<>>;

// Writes the values of `source` into `options`, whose other members keep theirs. If --set chooses
// another model, data set, optimizer or schedule, the file's options of its own choice go back to
// their defaults; so does a key of the file that a key of --set replaces. Throws
// Error(invalid_argument | not_found) naming file and line (or the option), key, value, rule and,
// for an unknown key, the nearest known one; also for a key without meaning beside the others.
GivenKeys read(const Source& source, const Table& table, void* options);

// The text that `source` gives a key, or empty: before the other keys can be read. Throws as
// read() does for what cannot be parsed.
std::string text_of(const Source& source, const Table& table, std::string_view key);

// Calls `check`. An error of it whose message begins with a key gets the origin of that key.
void check_with_origins(const GivenKeys& given, const std::function<void()>& check);

}  // namespace trireme::config
