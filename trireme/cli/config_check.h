// Rules between keys. They are checked after all values are set.
#pragma once
#include <trireme/cli/config_keys.h>
#include <map>

namespace trireme::cli {

// The origin of a key's value. A key without an entry has its default.
struct Given {
  std::string origin;   // "run.yaml:12", or the option: "--set"
  bool by_set = false;  // An option of the command line gave it.
};
using GivenKeys = std::map<std::string, Given, std::less<>>;

// Resets keys of the file that --set made meaningless. If --set chooses another model, data set,
// optimizer or schedule, the file's options of its own choice go back to their defaults.
// train.steps of --set also resets train.epochs of the file, and the other way round.
void drop_overridden(Config& config, GivenKeys& given);

// Throws Error(invalid_argument) naming place, key, value, rule and remedy.
void check(const Config& config, const GivenKeys& given);

}  // namespace trireme::cli
