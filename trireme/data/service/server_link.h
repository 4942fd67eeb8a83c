// One server of samples, as a worker sees it: connected, or lost, or too slow for now. No torch.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/descriptor.h>
#include <trireme/data/service/facts.h>
#include <trireme/net/requests/request_client.h>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace trireme::data {

// An open channel. The server of a host lives as long as a connection to its socket is open.
struct OpenServer {
  std::shared_ptr<net::RequestClient> client;
  Descriptor life_line;
};

// Any thread may call ask() and the questions; one thread calls open().
class ServerLink {
 public:
  using Connect = std::function<OpenServer(Deadline)>;
  // Called with the name of the server and a new channel before that is used. Throws Error if the
  // server is not to be used.
  using Prove = std::function<void(const std::string& name, net::RequestClient&, Deadline)>;
  // `name` stands in messages: "the data service at 10.0.0.1:29600".
  ServerLink(std::string name, Connect connect, Prove prove, Milliseconds timeout);

  // Connects, and proves the server, each within `patience`. Throws what they throw.
  void open(Milliseconds patience);
  // The same for later tries: logs the first failure, and waits longer after each.
  void try_again(Milliseconds patience);
  bool is_due() const;     // It is not connected, and another try is due.
  bool is_usable() const;  // It is connected, and was not too slow just now.

  // Sends a request, and waits for the reply. False: the server is lost, too slow, or has failed;
  // the caller asks elsewhere. A server whose reply `choose` refuses counts as lost.
  bool ask(const net::Message& request, const net::ChoosePlaces& choose, Milliseconds patience);
  const std::string& name() const { return name_; }

 private:
  void note_failure(const std::exception& error, bool is_slow);
  void lose(const std::shared_ptr<net::RequestClient>& client);
  void tell_loss();

  const std::string name_;
  const Connect connect_;
  const Prove prove_;
  const Milliseconds timeout_;
  mutable std::mutex mutex_;  // Guards all below.
  OpenServer server_;
  Deadline::Clock::time_point not_before_{};
  Milliseconds pause_;
  bool was_told_ = false;  // A failure was logged since the last success.
};

// Connects to the server at an address. Throws as net::RequestClient's constructor does, and names
// the variable of the token.
OpenServer connect_to(const net::Endpoint& server, const std::string& token, Deadline deadline,
                      Milliseconds silence);
// Compares the parts with the server's. Throws Error(invalid_argument) naming what differs.
void compare_parts(net::RequestClient& client, const std::vector<PartFacts>& parts,
                   Deadline deadline);

}  // namespace trireme::data
