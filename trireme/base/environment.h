// Environment variables as a value, so that a test can set those that code depends on.
#pragma once
#include <map>
#include <optional>
#include <string>

namespace trireme {

class Environment {
 public:
  static Environment of_process();
  Environment() = default;
  explicit Environment(std::map<std::string, std::string> variables)
      : variables_(std::move(variables)) {}

  std::optional<std::string> get(const std::string& name) const;
  // Throws Error(invalid_argument) naming the variable and its value if it is not a whole number.
  std::optional<int> get_int(const std::string& name) const;
  std::optional<int64_t> get_int64(const std::string& name) const;

 private:
  std::map<std::string, std::string> variables_;
};

}  // namespace trireme
