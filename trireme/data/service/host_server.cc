#include <trireme/data/service/host_server.h>

#include <ATen/core/Tensor.h>

#include <poll.h>
#include <trireme/base/error_parts.h>
#include <trireme/data/service/host_socket.h>
#include <trireme/net/control.h>
#include <algorithm>
#include <list>
#include <optional>
#include <utility>

namespace trireme::data {
namespace {

constexpr Milliseconds kFirstClient{20'000}, kLookAtClients{200};

// The clients of a host's server, by their connections.
class HostClients {
 public:
  HostClients(Descriptor listener, HostGreeting greeting)
      : listener_(std::move(listener)), greeting_(std::move(greeting)) {}

  // Waits a short time for clients that come or go.
  void look() {
    std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
    for (const Descriptor& client : clients_) entries.push_back({client.get(), POLLIN, 0});
    if (::poll(entries.data(), entries.size(), static_cast<int>(kLookAtClients.count())) <= 0)
      return;
    std::erase_if(clients_, [](const Descriptor& client) { return has_ended(client.get()); });
    greet();
  }
  // Greets those that wait. Whether there were any.
  bool greet() {
    bool came = false;
    while (auto client = accept_client(listener_.get())) {
      send_greeting(client->get(), greeting_);
      clients_.push_back(std::move(*client));
      came = true;
    }
    return came;
  }
  bool empty() const { return clients_.empty(); }

 private:
  const Descriptor listener_;
  const HostGreeting greeting_;
  std::list<Descriptor> clients_;
};

// All clients that have come by now get the reason. The next one finds the name free.
void refuse_clients(Descriptor listener, const std::exception& error) {
  const ErrorParts parts = parts_of(error);
  HostGreeting greeting;
  greeting.error = parts.what;
  HostClients clients(std::move(listener), std::move(greeting));
  const Deadline deadline = Deadline::after(kFirstClient);
  while (!clients.greet() && !deadline.expired()) clients.look();
}

}  // namespace

void run_host_server(Descriptor listener, const MakeParts& make_parts,
                     const std::function<bool()>& stops, Milliseconds linger) {
  SampleServerOptions own;
  std::optional<SampleServer> server;
  try {
    std::vector<ServedPart> parts = make_parts(own);
    own.listen = {"127.0.0.1", 0};
    own.token = net::make_token();
    server.emplace(std::move(parts), own);
  } catch (const std::exception& error) {
    return refuse_clients(std::move(listener), error);
  }
  HostClients clients(std::move(listener), {server->endpoint(), own.token, ""});
  Deadline end = Deadline::after(kFirstClient);
  while (!stops() && !end.expired()) {
    clients.look();
    if (!clients.empty()) end = Deadline::after(linger);
  }
}

}  // namespace trireme::data
