// Addresses, and the messages of control connections: self-describing values (JSON, sent as CBOR),
// each with its generation.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/json.h>
#include <string>

namespace trireme::net {

struct Endpoint {
  std::string host;  // A name or an address without brackets: "::1", "fe80::1%eth0".
  int port = 0;
  std::string describe() const;  // "127.0.0.1:29500", "[::1]:29500"
};
// Reads "host:port" or "[v6]:port". An IPv6 address may name its interface:
// "[fe80::1%eth0]:29500". Throws Error(invalid_argument) naming the text.
Endpoint parse_endpoint(const std::string& text);

// Returns the address of a network interface ("lo", "eth0"), or the text itself if it is already
// an address. Throws Error(not_found) with the list of interfaces.
std::string address_of_interface(const std::string& name_or_address);

// Returns the address that this host's name means to other hosts. Throws Error(not_found) with the
// list of interfaces if it is unknown, a loopback address, or an IPv6 address of one link only.
std::string address_of_this_host(Deadline deadline);

}  // namespace trireme::net
