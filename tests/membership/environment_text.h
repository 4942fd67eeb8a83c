// The environment of a process as the text that `env` prints.
#pragma once
#include <trireme/base/environment.h>
#include <map>
#include <sstream>
#include <string>

namespace trireme::membership {

// "A=1\nB=2" as `env` prints it.
inline Environment environment_of(const std::string& text) {
  std::map<std::string, std::string> variables;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const size_t equals = line.find('='); equals != std::string::npos)
      variables[line.substr(0, equals)] = line.substr(equals + 1);
  return Environment(std::move(variables));
}

}  // namespace trireme::membership
