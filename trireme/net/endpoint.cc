#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <trireme/base/error.h>
#include <trireme/base/host_name.h>
#include <trireme/net/message.h>
#include <trireme/net/sockets.h>
#include <unistd.h>
#include <charconv>
#include <map>
#include <vector>

namespace trireme::net {
namespace {

std::string text_of(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof text);
  } else if (address.sa_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    // A link-local address means nothing without its interface, so it is not published.
    if (!IN6_IS_ADDR_LINKLOCAL(&v6)) inet_ntop(AF_INET6, &v6, text, sizeof text);
  }
  return text;
}

// A link-local address may name its interface: fe80::1%eth0.
bool is_v6_address(const std::string& text) {
  in6_addr storage;
  const std::string without_zone = text.substr(0, text.find('%'));
  return !text.ends_with('%') && inet_pton(AF_INET6, without_zone.c_str(), &storage) == 1;
}

bool is_address(const std::string& text) {
  in_addr storage;
  return inet_pton(AF_INET, text.c_str(), &storage) == 1 || is_v6_address(text);
}

// Returns the first address of each interface that is up; IPv4 comes before IPv6.
std::map<std::string, std::string> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::map<std::string, std::string> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
      if (!entry->ifa_addr || entry->ifa_addr->sa_family != family || !(entry->ifa_flags & IFF_UP))
        continue;
      if (const std::string text = text_of(*entry->ifa_addr); !text.empty())
        addresses.emplace(entry->ifa_name, text);
    }
  }
  freeifaddrs(list);
  return addresses;
}

}  // namespace

std::string Endpoint::describe() const {
  if (host.find(':') != std::string::npos) return fmt::format("[{}]:{}", host, port);
  return fmt::format("{}:{}", host, port);
}

Endpoint parse_endpoint(const std::string& text) {
  const auto malformed = [&](std::string_view rule) {
    return Error(ErrorCode::invalid_argument, "net",
                 fmt::format("'{}' is not an endpoint: {}", text, rule),
                 "HOST:PORT, or [ADDRESS]:PORT for IPv6");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw malformed("it names no port");
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (!is_v6_address(host)) throw malformed("the brackets hold no IPv6 address");
  } else if (host.find_first_of(":[]") != std::string::npos) {
    throw malformed("an IPv6 address needs brackets");
  }
  if (host.empty()) throw malformed("it names no host");

  const std::string_view digits = std::string_view(text).substr(colon + 1);
  int port = -1;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (status != std::errc() || end != digits.data() + digits.size() || port < 0 || port > 65535)
    throw malformed("the port must be a number from 0 to 65535");
  return {host, port};
}

std::string describe_interfaces() {
  std::vector<std::string> names;
  for (const auto& [name, address] : interface_addresses())
    names.push_back(fmt::format("{} ({})", name, address));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string address_of_interface(const std::string& name_or_address) {
  if (is_address(name_or_address)) return name_or_address;
  const auto addresses = interface_addresses();
  const auto found = addresses.find(name_or_address);
  if (found != addresses.end()) return found->second;
  throw Error(
      ErrorCode::not_found, "net",
      fmt::format("this machine has no network interface '{}' with an address", name_or_address),
      "one of " + describe_interfaces());
}

std::string address_of_this_host(Deadline deadline) {
  const std::string name = own_host_name();
  for (const auto& endpoint : resolve({name, 0}, deadline)) {
    const auto address = endpoint.address();
    const bool is_link_local = address.is_v6() && address.to_v6().is_link_local();
    if (!address.is_loopback() && !is_link_local) return address.to_string();
  }
  throw Error(ErrorCode::not_found, "net",
              fmt::format("other hosts cannot reach this host by its name, '{}'", name),
              "comm.interface: one of " + describe_interfaces());
}

}  // namespace trireme::net
