#include <fmt/format.h>
#include <trireme/membership/variables.h>

namespace trireme::membership {

Error missing(const std::string& name, const std::string& present) {
  return Error(ErrorCode::invalid_argument, "membership",
               fmt::format("environment variable {} is missing, but {} is set", name, present),
               fmt::format("set {}, or unset {}", name, present));
}

std::string required_text(const Environment& environment, const std::string& name,
                          const std::string& present) {
  const auto value = environment.get(name);
  if (!value || value->empty()) throw missing(name, present);
  return *value;
}

std::string required_host(const Environment& environment, const std::string& name,
                          const std::string& present) {
  const std::string host = required_text(environment, name, present);
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return has_brackets ? host.substr(1, host.size() - 2) : host;
}

int required(const Environment& environment, const std::string& name, const std::string& present) {
  const auto value = environment.get_int(name);
  if (!value) throw missing(name, present);
  return *value;
}

void require_range(const std::string& name, int value, int low, int high,
                   const std::string& rule) {
  if (value >= low && value <= high) return;
  throw Error(ErrorCode::invalid_argument, "membership",
              fmt::format("environment variable {}={} is out of range: {}", name, value, rule),
              low <= high ? fmt::format("a number from {} to {}", low, high) : "");
}

}  // namespace trireme::membership
