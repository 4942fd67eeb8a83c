// An authenticated connection that sends and receives messages. Everything happens on the one
// thread of its executor.
//
// A frame on the wire is the length of the message, the message (net/framing.h), and the first 16
// bytes of an HMAC-SHA256. The HMAC covers the frame's number, the length and the message; its key
// is that of the direction (net/handshake.h). A frame that someone else changed, repeated, removed
// or added ends the connection.
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
    bool corrupt = false;  // The peer sent bytes that break the protocol.
  };

  Connection(asio::ip::tcp::socket socket, const SessionKeys& keys, int64_t max_message_bytes);

  // Passes each message to `received` until the connection ends, and returns the reason why it
  // ended. An exception of `received` counts as a corrupt message. Call it once.
  asio::awaitable<End> run(std::function<void(Json)> received);
  void send(std::vector<uint8_t> frame);
  // Sends the queue, tells the peer that nothing follows, and waits a bounded time until the peer
  // closes. Messages that still arrive are dropped.
  void finish();

 private:
  void write_next();
  void say_last();
  void end(End end);

  asio::ip::tcp::socket socket_;
  asio::steady_timer linger_;
  const SessionKeys keys_;
  const int64_t max_message_bytes_;
  uint64_t sent_ = 0;                       // The number of frames sent.
  std::deque<std::vector<uint8_t>> queue_;  // The front is the one that is being written.
  size_t queued_bytes_ = 0;
  bool finishing_ = false;
  std::optional<End> end_;
};

}  // namespace trireme::net
