// Calls a server of the job until it answers, and proves the job token to it.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/net/control.h>
#include <trireme/net/handshake.h>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <functional>
#include <string>

namespace trireme::net {

struct DialOptions {
  Purpose purpose = Purpose::worker;
  Subject subject{};
  Milliseconds handshake_timeout{5000};  // The limit of one try.
  // Called between tries; an exception ends them. It may be empty.
  std::function<void()> throw_if_hopeless = {};
  std::string callee = "the job's coordinator";  // The server's name in the remedy.
};

struct Dialled {
  asio::ip::tcp::socket socket;
  SessionKeys keys;
};

// Runs `context` on the calling thread, and leaves it stopped. Throws Error(timeout) naming the
// address and the last reason, or at once Error(invalid_argument) if the token is empty, and
// WrongToken (invalid_argument) if it is wrong.
Dialled dial(asio::io_context& context, const Endpoint& server, const std::string& token,
             const DialOptions& options, Deadline deadline);

}  // namespace trireme::net
