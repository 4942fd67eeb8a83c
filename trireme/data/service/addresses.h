// The value of data.service. No torch.
#pragma once
#include <string>
#include <vector>

namespace trireme::data {

inline constexpr const char* kServiceOfHost = "host";
inline constexpr const char* kNoServer = "none";

// "none": nothing; "host": this word; else the addresses of servers. Throws
// Error(invalid_argument) that begins with data.service.
std::vector<std::string> service_addresses(const std::string& service);

}  // namespace trireme::data
