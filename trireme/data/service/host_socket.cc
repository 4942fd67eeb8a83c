#include <trireme/data/service/host_socket.h>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/base/units.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

namespace trireme::data {
namespace {

constexpr int kBacklog = 512;
constexpr size_t kMostGreetingBytes = 16384;
constexpr const char* kNoService = "data.service: none";

std::pair<sockaddr_un, socklen_t> address_of_name(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

[[noreturn]] void fail_host_socket(const char* what) {
  throw Error(
      ErrorCode::io, "data",
      fmt::format("the socket of the host's data service: {}: {}", what, std::strerror(errno)),
      kNoService);
}

Descriptor open_host_socket() {
  Descriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) fail_host_socket("socket");
  return made;
}

bool is_of_this_user(int connected) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(connected, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == ::geteuid();
}

// Empty for a message that is none of a server.
std::optional<HostGreeting> greeting_in(std::string_view text) {
  try {
    const Json message = Json::parse(text);
    return HostGreeting{message.at("opening").get<bool>(),
                        {message.at("host").get<std::string>(), message.at("port").get<int>()},
                        message.at("token").get<std::string>(),
                        message.at("error").get<std::string>()};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string host_service_name(const std::string& digest) {
  return fmt::format("trireme-data-{}-{}", ::geteuid(), digest.substr(0, 40));
}

std::optional<Descriptor> claim_host_name(const std::string& name) {
  Descriptor listener = open_host_socket();
  const auto [address, length] = address_of_name(name);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE) return std::nullopt;
    fail_host_socket("bind");
  }
  if (::listen(listener.get(), kBacklog) != 0) fail_host_socket("listen");
  return listener;
}

std::optional<Descriptor> call_host_name(const std::string& name) {
  Descriptor connected = open_host_socket();
  const auto [address, length] = address_of_name(name);
  if (::connect(connected.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    // The name is free, was bound and does not listen yet, or has too many callers now.
    if (errno == ECONNREFUSED || errno == EAGAIN || errno == ENOENT) return std::nullopt;
    fail_host_socket("connect");
  }
  if (!is_of_this_user(connected.get()))
    throw Error(ErrorCode::io, "data",
                fmt::format("a process of another user has the name {} of this user's data "
                            "service",
                            name),
                kNoService);
  return connected;
}

std::optional<Descriptor> accept_client(int listener) {
  for (;;) {
    Descriptor client(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        fail_host_socket("accept");
      return std::nullopt;
    }
    if (is_of_this_user(client.get())) return client;
  }
}

bool send_greeting(int client, const HostGreeting& greeting) {
  Json message = {{"opening", greeting.is_opening},
                  {"host", greeting.at.host},
                  {"port", greeting.at.port},
                  {"token", greeting.token},
                  {"error", greeting.error.substr(0, kMostGreetingBytes / 8)}};
  const std::string text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return ::send(client, text.data(), text.size(), MSG_NOSIGNAL) == std::ssize(text);
}

std::optional<HostGreeting> receive_greeting(int server, Deadline deadline) {
  for (;;) {
    pollfd entry{server, POLLIN, 0};
    const int ready = ::poll(&entry, 1, deadline.remaining_as_int());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0)
      throw Error(ErrorCode::timeout, "data",
                  fmt::format("waited {} for the data service of this host to start",
                              format_duration(deadline.allowed())),
                  "a longer data.service_timeout");
    std::array<char, kMostGreetingBytes> text;
    const ssize_t bytes = ::recv(server, text.data(), text.size(), 0);
    if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (bytes <= 0) return std::nullopt;
    return greeting_in({text.data(), static_cast<size_t>(bytes)});
  }
}

bool has_ended(int connection) {
  char byte;
  const ssize_t bytes = ::recv(connection, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

}  // namespace trireme::data
