#include <trireme/net/sockets.h>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <trireme/base/error.h>
#include <asio/io_context.hpp>

namespace trireme::net {
namespace {

using asio::ip::tcp;

[[noreturn]] void throw_errno(int number) {
  throw std::system_error(number, std::system_category());
}

tcp protocol_of(const tcp::endpoint& address) {
  return address.address().is_v6() ? tcp::v6() : tcp::v4();
}

int open_descriptor(const tcp::endpoint& address) {
  const int family = address.address().is_v6() ? AF_INET6 : AF_INET;
  const int descriptor = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
  if (descriptor < 0) throw_errno(errno);
  return descriptor;
}

std::string remedy_for(int number) {
  switch (number) {
    case EADDRINUSE: return "another port, or stop the programme that holds it";
    case EADDRNOTAVAIL: return "an address of this machine: " + describe_interfaces();
    case EACCES: return "a port above 1023";
    default: return "another address or port";
  }
}

Error cannot_listen(const Endpoint& endpoint, std::string_view reason, std::string_view remedy) {
  return Error(ErrorCode::io, "net",
               fmt::format("cannot listen on {}: {}", endpoint.describe(), reason), remedy);
}

tcp::acceptor listen_at(asio::io_context& context, const Endpoint& endpoint,
                        const tcp::endpoint& address) {
  if (address.address().is_unspecified())
    throw Error(
        ErrorCode::invalid_argument, "net",
        fmt::format("{} would listen on every network of this machine; one address must be named",
                    endpoint.describe()),
        "127.0.0.1, or the address of the network the workers share: " + describe_interfaces());
  tcp::acceptor acceptor(context);
  acceptor.assign(protocol_of(address), open_descriptor(address));
  acceptor.set_option(tcp::acceptor::reuse_address(true));
  acceptor.bind(address);
  acceptor.listen();
  acceptor.native_non_blocking(true);
  return acceptor;
}

}  // namespace

void open_private(tcp::socket& socket, const tcp::endpoint& address) {
  socket.assign(protocol_of(address), open_descriptor(address));
}

tcp::acceptor listen_on(asio::io_context& context, const Endpoint& endpoint) {
  const auto addresses = resolve(endpoint, Deadline::after(Milliseconds(10000)));
  if (addresses.empty())
    throw cannot_listen(endpoint, "the name has no address",
                        "an address of this machine: " + describe_interfaces());
  return listen_on_first(context, endpoint, addresses);
}

tcp::acceptor listen_on_first(asio::io_context& context, const Endpoint& endpoint,
                              const std::vector<tcp::endpoint>& addresses) {
  for (size_t i = 0;; ++i) {
    try {
      return listen_at(context, endpoint, addresses.at(i));
    } catch (const std::system_error& error) {
      // A name such as localhost may have an IPv6 address on a machine without IPv6.
      const int number = error.code().value();
      const bool is_elsewhere = number == EADDRNOTAVAIL || number == EAFNOSUPPORT;
      if (!is_elsewhere || i + 1 == addresses.size())
        throw cannot_listen(endpoint, error.code().message(), remedy_for(number));
    }
  }
}

Accepted accept_private(tcp::acceptor& acceptor) {
  tcp::endpoint from;
  socklen_t length = static_cast<socklen_t>(from.capacity());
  const int descriptor =
      ::accept4(acceptor.native_handle(), from.data(), &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
  tcp::socket socket(acceptor.get_executor());
  if (descriptor < 0) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      throw_errno(errno);
    return {std::move(socket), {}};  // The connection closed between its announcement and accept.
  }
  from.resize(length);
  socket.assign(protocol_of(from), descriptor);
  return {std::move(socket), Endpoint{from.address().to_string(), from.port()}.describe()};
}

void tune(tcp::socket& socket, Milliseconds silence) {
  const auto set = [&](int level, int name, int value) {
    // A kernel without one of these options only notices a dead peer later.
    (void)::setsockopt(socket.native_handle(), level, name, &value, sizeof value);
  };
  silence = std::clamp(silence, Milliseconds(1), Milliseconds(std::chrono::hours(24)));
  const int seconds = std::max<int>(1, static_cast<int>(silence.count() / 1000));
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // Keepalive probes an idle connection. It is quiet while data is unacknowledged; then the user
  // timeout counts.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence.count()));
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
  set(IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 6));
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace trireme::net
