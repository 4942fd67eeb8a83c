// Control connections: TCP that believes nothing before an HMAC challenge on the job token.
//
// Handshake (all lengths fixed, so a stranger can make us allocate nothing): magic, nonce exchange,
// then each side proves the token by HMAC-SHA256 over both nonces and its role. Until that is done
// the peer is a stranger: wrong bytes or silence end the connection, which is logged with its
// address and otherwise ignored. After it: frames of a length (4 bytes) and a CBOR value. Frames
// are neither signed one by one nor encrypted: who can rewrite packets between the hosts can take
// over a connection after its handshake.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/json.h>
#include <trireme/net/message.h>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace trireme::net {

struct ControlOptions {
  Milliseconds handshake_timeout{5000};  // A stranger is dropped after this.
  int max_strangers = 256;               // At once; one more drops the oldest.
  Milliseconds silence_timeout{
      10000};  // TCP_USER_TIMEOUT: unacknowledged data older than this breaks a connection.
  int64_t max_message_bytes =
      256 << 20;  // After authentication. Larger: the connection is dropped as corrupt.
  // Called between a client's tries to connect; what it throws ends them. May be empty.
  std::function<void()> throw_if_hopeless = {};
};

using ConnectionId = uint64_t;

// Of the reason why a connection closed: the peer ended it, or its process did. False: the network
// broke it, and the peer may live.
bool ended_by_peer(const std::string& reason);

// Called on the server's own thread, one call at a time; they must not block. What `received`
// throws closes the connection it came by; the others must not throw.
struct ServerEvents {
  std::function<void(ConnectionId, const std::string& peer)> opened;  // Authenticated.
  std::function<void(ConnectionId, Json message)> received;
  std::function<void(ConnectionId, const std::string& reason)> closed;
  std::function<void()> tick;  // About every 50 ms.
};

class ControlServer {
 public:
  // Listens on `listen` (port 0: any free one) and starts its thread. Binds to that address only,
  // never to all. Throws Error(io) naming the address if it is taken or not ours, with the remedy;
  // Error(invalid_argument) for an empty token or an address that means every interface.
  ControlServer(const Endpoint& listen, std::string token, ServerEvents events,
                ControlOptions options = {});
  ~ControlServer();  // stop()
  // Closes everything and joins the thread: `events` are not called after it returns, while they
  // may send to the last.
  void stop();
  Endpoint endpoint() const;
  // Any thread; queued. Unknown or closed connections are ignored. Throws Error(invalid_argument)
  // if the message is too long.
  void send(ConnectionId to, Json message);
  void close(ConnectionId connection);  // After what is queued was sent.

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
  // Connects, retrying while the server is not there yet, and authenticates both ways. Throws
  // Error(timeout) naming the address and the last reason, or Error(invalid_argument) at once if
  // the token is wrong.
  ControlClient(const Endpoint& server, std::string token, ClientEvents events, Deadline deadline,
                ControlOptions options = {});
  ~ControlClient();
  // Any thread; queued. Ignored after the connection broke. Throws Error(invalid_argument) if the
  // message is too long.
  void send(Json message);
  // Sends what is queued, then closes. Waits for that until the deadline.
  void close(Deadline deadline);
  std::string local_address() const;  // This side's address on that connection.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether a server of the job still listens at its address: what tells a process that is gone from
// one that only cannot be reached.
enum class Reach {
  listens,    // And proved the token.
  other_job,  // Something else listens there now, or a job of another token.
  refused,    // Its host answered: nobody listens there any more.
  silent,     // No answer by the deadline, or no way there: it may live.
};
// The process that listened there has ended: another one may have its port by now.
inline bool is_gone(Reach reach) { return reach == Reach::refused || reach == Reach::other_job; }
Reach reach(const Endpoint& server, const std::string& token, Deadline deadline);

// A fresh token: 32 random bytes as hex.
std::string make_token();

}  // namespace trireme::net
