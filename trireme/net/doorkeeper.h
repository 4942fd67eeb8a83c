// Accepts connections on a listening socket and lets in those that prove the job token.
//
// A connection counts as a stranger until its first bytes carry the job's seal (net/handshake.h).
// The number of strangers is limited, for each address and in all. One more drops the oldest
// stranger of the address that has the most. Connections with the seal have a limit of their own,
// so strangers never displace the job's own processes, even when both come from one address. Every
// connection has a deadline by which it must have proven the token, however slowly it sends.
#pragma once
#include <trireme/net/complaints.h>
#include <trireme/net/handshake.h>
#include <trireme/net/sockets.h>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

namespace trireme::net {

struct DoorOptions {
  ServerTerms terms;
  Milliseconds patience{5000};  // The time in which a connection must prove the token.
  size_t max_strangers = 256;   // The limit for all addresses together.
  size_t max_per_address = 64;
  // The limit for connections with the seal that have not proven the token yet.
  size_t max_sealed = 1024;
  std::string room = "net";  // The name at the start of log lines.
};

class Doorkeeper {
 public:
  struct Guest {
    asio::ip::tcp::socket socket;
    std::string peer;  // "127.0.0.1:51234"
    Hello hello;
    SessionKeys keys;
  };
  // `admit` is called on the context's thread for each connection that has proven the token.
  Doorkeeper(asio::io_context& context, const Endpoint& listen, DoorOptions options,
             std::function<void(Guest)> admit);
  ~Doorkeeper();  // Call it after the context has stopped.

  const Endpoint& endpoint() const { return bound_; }

 private:
  struct Stranger;
  using StrangerPtr = std::shared_ptr<Stranger>;

  asio::awaitable<void> accept_all();
  asio::awaitable<void> tick();
  void greet(Accepted accepted);
  asio::awaitable<void> serve(StrangerPtr stranger);
  asio::awaitable<std::string> examine(const StrangerPtr& stranger, Greeted& greeted);
  void make_room(const std::string& address);
  void drop_oldest_of(const std::string& address, const std::string& reason);
  void note_seal(const StrangerPtr& stranger);
  void forget(const StrangerPtr& stranger);

  asio::io_context& context_;
  asio::ip::tcp::acceptor acceptor_;
  const Endpoint bound_;
  const DoorOptions options_;
  const std::function<void(Guest)> admit_;
  Complaints complaints_;
  // By address; the oldest stranger is first.
  std::map<std::string, std::list<StrangerPtr>> strangers_;
  size_t count_ = 0;               // The number of all strangers.
  std::list<StrangerPtr> sealed_;  // The oldest connection is first.
};

}  // namespace trireme::net
