#include <trireme/data/service/addresses.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/net/message.h>
#include <algorithm>

namespace trireme::data {

std::vector<std::string> service_addresses(const std::string& service) {
  std::vector<std::string> addresses;
  if (service.empty() || service == kNoServer) return addresses;
  if (service == kServiceOfHost) return {service};
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("data.service is \"{}\": {}", service, what),
                "none, host, or HOST:PORT[,HOST:PORT...]");
  };
  for (size_t at = 0; at <= service.size();) {
    const size_t end = std::min(service.find(',', at), service.size());
    const std::string address = service.substr(at, end - at);
    try {
      if (net::parse_endpoint(address).port == 0) refuse("port 0 is no server's");
    } catch (const Error& error) {
      const std::string what = parts_of(error).what;
      if (what.starts_with("data.service")) throw;
      refuse(what);
    }
    if (std::ranges::find(addresses, address) != addresses.end())
      refuse(fmt::format("{} stands there twice", address));
    addresses.push_back(address);
    at = end + 1;
  }
  return addresses;
}

}  // namespace trireme::data
