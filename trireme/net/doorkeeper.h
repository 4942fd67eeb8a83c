// Accepts connections on a listening socket and lets in those that prove the job token.
//
// A connection counts as a stranger until its first bytes carry the job's seal (net/handshake.h).
// Strangers are bounded in number, for each address and in all; one more drops the oldest of the
// address that has the most. Connections with the seal have a bound of their own, so that strangers
// never push out the job's own processes, also where both come from one address. Every connection
// has a deadline by which it must have proven the token, however slowly it sends.
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
  Milliseconds patience{5000};  // With a connection that has not proven the token.
  size_t max_strangers = 256;   // In all.
  size_t max_per_address = 64;
  size_t max_sealed = 1024;  // With the seal, and not proven yet.
  std::string room = "net";  // Of the log's lines.
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
  ~Doorkeeper();  // After the context has stopped.

  const Endpoint& endpoint() const { return bound_; }

 private:
  struct Stranger;
  using StrangerPtr = std::shared_ptr<Stranger>;

  asio::awaitable<void> accept_all();
  asio::awaitable<void> tick();
  void greet(Accepted accepted);
  asio::awaitable<void> serve(StrangerPtr stranger);
  asio::awaitable<std::string> examine(StrangerPtr stranger, Greeted& greeted);
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
  std::map<std::string, std::list<StrangerPtr>> strangers_;  // By address; oldest first.
  size_t count_ = 0;                                         // Of all strangers.
  std::list<StrangerPtr> sealed_;                            // Oldest first.
};

}  // namespace trireme::net
