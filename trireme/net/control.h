// Control connections: TCP that believes nothing before an HMAC challenge on the job token.
//
// Handshake (all lengths fixed, so a stranger can make us allocate nothing): magic, nonce exchange, then each side
// proves the token by HMAC-SHA256 over both nonces and its role. Until that is done the peer is a stranger: wrong bytes
// or silence end the connection, which is logged with its address and otherwise ignored. After it: frames of a length
// (4 bytes) and a CBOR value.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <trireme/base/deadline.h>
#include <trireme/base/json.h>
#include <trireme/net/message.h>

namespace trireme::net {

struct ControlOptions {
  Milliseconds handshake_timeout{5000};  // A stranger is dropped after this.
  Milliseconds silence_timeout{10000};   // TCP_USER_TIMEOUT: unacknowledged data older than this breaks a connection.
  int64_t max_message_bytes = 256 << 20; // After authentication. Larger: the connection is dropped as corrupt.
};

using ConnectionId = uint64_t;

// Called on the server's own thread, one call at a time; they must not block.
struct ServerEvents {
  std::function<void(ConnectionId, const std::string& peer)> opened;  // Authenticated.
  std::function<void(ConnectionId, Json message)> received;
  std::function<void(ConnectionId, const std::string& reason)> closed;
  std::function<void()> tick;  // About every 50 ms.
};

class ControlServer {
 public:
  // Listens on `listen` (port 0: any free one) and starts its thread. Binds to that address only, never to all.
  // Throws Error(io) naming the address if it is taken or not ours, with the remedy.
  ControlServer(const Endpoint& listen, std::string token, ServerEvents events, ControlOptions options = {});
  ~ControlServer();  // Closes everything; joins the thread. `events` are not called after it returns.
  Endpoint endpoint() const;
  void send(ConnectionId to, Json message);  // Any thread; queued. Unknown or closed connections are ignored.
  void close(ConnectionId connection);       // After what is queued was sent.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Called on the client's own thread; they must not block.
struct ClientEvents {
  std::function<void(Json message)> received;
  std::function<void(const std::string& reason)> closed;  // Once, unless close() was called first.
};

class ControlClient {
 public:
  // Connects, retrying while the server is not there yet, and authenticates both ways. Throws Error(timeout) naming the
  // address and the last reason, or Error(invalid_argument) at once if the token is wrong.
  ControlClient(const Endpoint& server, std::string token, ClientEvents events, Deadline deadline, ControlOptions options = {});
  ~ControlClient();
  void send(Json message);  // Any thread; queued. Ignored after the connection broke.
  // Sends what is queued, then closes. Waits for that until the deadline.
  void close(Deadline deadline);
  std::string local_address() const;  // This side's address on that connection.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A fresh token: 32 random bytes as hex.
std::string make_token();

}  // namespace trireme::net
