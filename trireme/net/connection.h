// An authenticated connection: messages in, messages out. Everything happens on its executor's one
// thread.
//
// A frame on the wire is the length of the message, the message (net/framing.h) and the first 16
// bytes of HMAC-SHA256 over the frame's number, the length and the message, under the key of its
// direction (net/handshake.h). A frame that was changed, repeated, left out or added by others ends
// the connection.
#pragma once
#include <trireme/base/json.h>
#include <trireme/net/handshake.h>
#include <asio/awaitable.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::net {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct End {
    std::string reason;
    bool corrupt = false;  // The peer sent what it must not.
  };

  Connection(asio::ip::tcp::socket socket, const SessionKeys& keys, int64_t max_message_bytes);

  // Hands each message to `received` until the connection ends, and returns why it did. An
  // exception of `received` counts as a corrupt message. Call once.
  asio::awaitable<End> run(std::function<void(Json)> received);
  void send(std::vector<uint8_t> frame);
  // Sends what is queued, tells the peer that nothing follows, and waits for it to close for a
  // bounded time. Messages that still arrive are dropped.
  void finish();

 private:
  void write_next();
  void say_last();
  void end(End end);

  asio::ip::tcp::socket socket_;
  asio::steady_timer linger_;
  const SessionKeys keys_;
  const int64_t max_message_bytes_;
  uint64_t sent_ = 0;                       // Frames.
  std::deque<std::vector<uint8_t>> queue_;  // The front is being written.
  size_t queued_bytes_ = 0;
  bool finishing_ = false;
  std::optional<End> end_;
};

}  // namespace trireme::net
