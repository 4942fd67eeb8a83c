#include <netdb.h>
#include <trireme/net/sockets.h>
#include <cstring>
#include <future>
#include <thread>

namespace trireme::net {
namespace {

using asio::ip::tcp;

std::vector<tcp::endpoint> look_up(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found) !=
      0)
    return {};
  std::vector<tcp::endpoint> addresses;
  for (const addrinfo* entry = found; entry; entry = entry->ai_next) {
    tcp::endpoint address;
    address.resize(entry->ai_addrlen);
    std::memcpy(address.data(), entry->ai_addr, entry->ai_addrlen);
    addresses.push_back(address);
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace

std::vector<tcp::endpoint> resolve(const Endpoint& endpoint, Deadline deadline) {
  std::error_code not_numeric;
  const auto address = asio::ip::make_address(endpoint.host, not_numeric);
  if (!not_numeric)
    return {tcp::endpoint(address, static_cast<asio::ip::port_type>(endpoint.port))};

  // getaddrinfo cannot be interrupted, and may take half a minute while name servers are silent.
  // It therefore runs in a thread of its own, which is left behind when the deadline comes first.
  std::packaged_task<std::vector<tcp::endpoint>()> task([endpoint] { return look_up(endpoint); });
  auto answer = task.get_future();
  std::thread(std::move(task)).detach();
  if (answer.wait_until(deadline.at()) != std::future_status::ready) return {};
  return answer.get();
}

}  // namespace trireme::net
