// Environment variables of launchers, which come in sets: one is missing if another is there.
#pragma once
#include <trireme/base/environment.h>
#include <trireme/base/error.h>
#include <trireme/membership/roles.h>
#include <string>

namespace trireme::membership {

inline constexpr int kMaxWorkers = kFirstSideTask;

// An Error(invalid_argument): the variable `name` is missing, although `present` is set.
Error missing(const std::string& name, const std::string& present);
// The value of `name`. Throws missing() if it is not set, or empty.
std::string required_text(const Environment& environment, const std::string& name,
                          const std::string& present);
// The same as a host: a name or an address. The brackets around an IPv6 address are taken away.
std::string required_host(const Environment& environment, const std::string& name,
                          const std::string& present);
// The same as a number. Throws Error(invalid_argument) that names it if it is none.
int required(const Environment& environment, const std::string& name, const std::string& present);
// Throws Error(invalid_argument) that names the variable unless low <= value <= high.
void require_range(const std::string& name, int value, int low, int high, const std::string& rule);

}  // namespace trireme::membership
