// Rules between keys, checked after all values are set.
#pragma once
#include <trireme/cli/config_keys.h>
#include <map>

namespace trireme::cli {

// Who gave a key its value; a key that is not here has its default.
struct Given {
  std::string origin;  // "run.yaml:12" or "--set"
  bool by_set = false;
};
using GivenKeys = std::map<std::string, Given, std::less<>>;

// Where --set chooses another model, data set, optimizer or schedule than the file, what the file
// says of its own choice is taken back to the default; so is train.epochs of the file by
// train.steps of --set, and the other way.
void drop_overridden(Config& config, GivenKeys& given);

// Throws Error(invalid_argument) naming where, key, value, rule and remedy.
void check(const Config& config, const GivenKeys& given);

}  // namespace trireme::cli
