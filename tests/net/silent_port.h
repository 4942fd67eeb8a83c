// A peer that does not answer.
#pragma once
#include <trireme/net/message.h>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

namespace trireme::net {

// Accepts connections and never answers, like a process that is stopped.
class SilentPort {
 public:
  Endpoint endpoint() const { return {"127.0.0.1", acceptor_.local_endpoint().port()}; }

 private:
  asio::io_context context_;
  asio::ip::tcp::acceptor acceptor_{context_, {asio::ip::make_address("127.0.0.1"), 0}};
};

}  // namespace trireme::net
