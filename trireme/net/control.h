// Control connections: TCP that believes nothing before both ends have proven the job token.
//
// A peer is a stranger until its handshake is done (net/handshake.h): wrong bytes or silence end
// the connection, which is logged with its address and otherwise ignored. After the handshake come
// frames of a length, a CBOR value and a tag that signs them (net/connection.h). Nothing is
// encrypted.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/json.h>
#include <trireme/net/message.h>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace trireme::net {

// What the client of a connection wants. Both ends prove it; the server can allow each purpose its
// own messages only.
enum class Purpose : uint8_t {
  worker = 1,  // A worker of a generation.
  arrival,     // A process that wants a place in the next generation.
  scale,       // A request for another number of workers.
  probe,       // Only asks whether the job listens here.
  mesh,        // A link between two ranks of a TCP group; never on a control connection.
};

struct ControlOptions {
  Purpose purpose = Purpose::worker;     // Of a client.
  Milliseconds handshake_timeout{5000};  // A stranger is dropped after this.
  // Connections that have not shown to belong to the job, at once. One more drops the oldest.
  int max_strangers = 256;
  int max_strangers_per_address = 64;
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
  // Authenticated.
  std::function<void(ConnectionId, const std::string& peer, Purpose)> opened;
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
  other_job,  // Something else listens there now: another program, another job, or a relay.
  refused,    // Its host answered: nobody listens there any more.
  silent,     // No answer by the deadline, or no way there: it may live.
};
// The process that listened there has ended: another one may have its port by now.
inline bool is_gone(Reach reach) { return reach == Reach::refused || reach == Reach::other_job; }
Reach reach(const Endpoint& server, const std::string& token, Deadline deadline);

// A fresh token: 32 random bytes as hex.
std::string make_token();

}  // namespace trireme::net
