// What travels on a control connection: self-describing values (JSON, sent as CBOR), each with its
// generation.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/json.h>
#include <string>

namespace trireme::net {

struct Endpoint {
  std::string host;  // A name or address. "[::1]" style is printed for IPv6.
  int port = 0;
  std::string describe() const;  // "127.0.0.1:29500"
};
// "host:port" or "[v6]:port". Throws Error(invalid_argument) naming the text.
Endpoint parse_endpoint(const std::string& text);

// The address of a network interface ("lo", "eth0"), or the text itself if it is an address
// already. Throws Error(not_found) with the interfaces there are.
std::string address_of_interface(const std::string& name_or_address);

// The address that this host's name means to others. Throws Error(not_found) if it is unknown or
// loopback's, with the interfaces there are.
std::string address_of_this_host(Deadline deadline);

}  // namespace trireme::net
