#include <trireme/data/service/host_server.h>

#include <ATen/core/Tensor.h>

#include <poll.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <trireme/data/service/host_socket.h>
#include <trireme/net/control.h>
#include <algorithm>
#include <list>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace trireme::data {
namespace {

using Clock = Deadline::Clock;

constexpr Milliseconds kFirstClient{20'000}, kLookAtClients{200}, kLookWhileOpening{20};
// The pause between two signs that the data is still being opened, and after a connection that
// could not be taken.
constexpr Milliseconds kSign{500}, kPause{1000};

// The clients of a host's server, by their connections.
class HostClients {
 public:
  explicit HostClients(Descriptor listener) : listener_(std::move(listener)) {}

  // Until this is called, clients are told from time to time that the server opens the data.
  void greet(HostGreeting greeting) {
    greeting_ = std::move(greeting);
    for (HostClient& each : clients_) each.told_from = {};
    tell();
  }
  // Waits a short time for clients that come or go.
  void look(Milliseconds wait = kLookAtClients) {
    const bool takes = Clock::now() >= takes_from_;
    // The system leaves out a negative number.
    std::vector<pollfd> entries{{takes ? listener_.get() : -1, POLLIN, 0}};
    for (const HostClient& each : clients_) entries.push_back({each.line.get(), POLLIN, 0});
    ::poll(entries.data(), entries.size(), static_cast<int>(wait.count()));
    std::erase_if(clients_, [](const HostClient& each) { return has_ended(each.line.get()); });
    if (takes) take_new();
    tell();
  }
  bool empty() const { return clients_.empty(); }
  bool has_greeted() const { return has_greeted_; }

 private:
  struct HostClient {
    Descriptor line;
    bool is_greeted = false;
    Clock::time_point told_from{};
  };

  // A client that gave up while it waited is none.
  void take_new() {
    try {
      while (auto line = accept_client(listener_.get()))
        if (!has_ended(line->get())) clients_.push_back({std::move(*line)});
    } catch (const Error& error) {
      // The listener stays ready to be read, so poll() would not wait.
      takes_from_ = Clock::now() + kPause;
      if (!std::exchange(was_told_, true))
        log_warning("new clients of the data service of this host wait: {}", parts_of(error).what);
    }
  }

  void tell() {
    const auto now = Clock::now();
    for (HostClient& each : clients_) {
      if (each.is_greeted || now < each.told_from) continue;
      each.told_from = now + kSign;
      each.is_greeted = send_greeting(each.line.get(), greeting_) && !greeting_.is_opening;
      has_greeted_ = has_greeted_ || each.is_greeted;
    }
  }

  const Descriptor listener_;
  HostGreeting greeting_{.is_opening = true, .at = {}, .token = {}, .error = {}};
  std::list<HostClient> clients_;
  Clock::time_point takes_from_{};
  bool was_told_ = false, has_greeted_ = false;
};

// Takes clients on a thread of its own while the data is being opened.
class OpeningNotes {
 public:
  explicit OpeningNotes(HostClients& clients)
      : thread_([&clients](const std::stop_token& stop) {
          while (!stop.stop_requested()) clients.look(kLookWhileOpening);
        }) {}

 private:
  std::jthread thread_;
};

// All clients that have come by now get the reason. The next one finds the name free.
void refuse_clients(HostClients& clients, const std::function<bool()>& stops,
                    const std::exception& error) {
  HostGreeting refusal;
  refusal.error = parts_of(error).what;
  clients.greet(std::move(refusal));
  clients.look(Milliseconds(0));
  const Deadline deadline = Deadline::after(kFirstClient);
  while (!clients.has_greeted() && !stops() && !deadline.expired()) clients.look();
}

}  // namespace

void run_host_server(Descriptor listener, const MakeParts& make_parts,
                     const std::function<bool()>& stops, Milliseconds linger) {
  HostClients clients(std::move(listener));
  SampleServerOptions own;
  std::optional<SampleServer> server;
  try {
    const OpeningNotes notes(clients);
    std::vector<ServedPart> parts = make_parts(own);
    own.listen = {"127.0.0.1", 0};
    own.token = net::make_token();
    server.emplace(std::move(parts), own);
  } catch (const std::exception& error) {
    return refuse_clients(clients, stops, error);
  }
  HostGreeting greeting;
  greeting.at = server->endpoint();
  greeting.token = own.token;
  clients.greet(std::move(greeting));
  Deadline end = Deadline::after(clients.has_greeted() ? linger : kFirstClient);
  while (!stops() && !end.expired()) {
    clients.look();
    if (!clients.empty()) end = Deadline::after(linger);
  }
}

}  // namespace trireme::data
