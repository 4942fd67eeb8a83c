// Sockets for the control connections. They are closed on exec, bound to one address, and notice a
// dead peer quickly.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/net/message.h>
#include <asio/ip/tcp.hpp>
#include <string>
#include <vector>

namespace trireme::net {

// Looks up the addresses of `endpoint` until the deadline. The result is empty if the name has no
// address (yet).
std::vector<asio::ip::tcp::endpoint> resolve(const Endpoint& endpoint, Deadline deadline);

// Opens `socket`. Asio's own open() would pass the descriptor on to child processes.
void open_private(asio::ip::tcp::socket& socket, const asio::ip::tcp::endpoint& address);
// Accepts one waiting connection without blocking. `peer` is empty if no connection was waiting
// after all. Throws std::system_error if the system has no room for it.
struct Accepted {
  asio::ip::tcp::socket socket;
  std::string peer;  // "127.0.0.1:51234"
};
Accepted accept_private(asio::ip::tcp::acceptor& acceptor);
// Listens on exactly this address, or on the first address of a name that this machine has. Throws
// Error(io) naming the address and the remedy.
asio::ip::tcp::acceptor listen_on(asio::io_context& context, const Endpoint& endpoint);
// The same with the addresses of `endpoint`, of which there is at least one.
asio::ip::tcp::acceptor listen_on_first(asio::io_context& context, const Endpoint& endpoint,
                                        const std::vector<asio::ip::tcp::endpoint>& addresses);

// Sends small messages at once. A peer that acknowledges nothing for `silence` breaks the
// connection.
void tune(asio::ip::tcp::socket& socket, Milliseconds silence);

// "lo (127.0.0.1), eth0 (10.0.0.2)"
std::string describe_interfaces();

}  // namespace trireme::net
