// Control connections: TCP that trusts no bytes before both ends have proven the job token.
//
// A peer is a stranger until its handshake is done (net/handshake.h). Wrong bytes or silence end
// its connection; this is logged with its address and otherwise ignored. Frames follow the
// handshake: a length, a CBOR value, and a tag that signs both (net/connection.h). Nothing is
// encrypted.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/net/message.h>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace trireme::net {

// The purpose for which a client connects. Both ends prove it, so the server can allow each
// purpose its own messages only.
enum class Purpose : uint8_t {
  worker = 1,  // A worker of a generation.
  arrival,     // A process that wants a place in the next generation.
  scale,       // A command from outside, for another number of workers or another consistency.
  probe,       // A client that only asks whether the job listens at this address.
  mesh,        // A link between two ranks of a TCP group; never on a control connection.
  requests,    // A request channel (net/requests/); never on a control connection.
};

struct ControlOptions {
  Purpose purpose = Purpose::worker;     // The purpose of a client.
  Milliseconds handshake_timeout{5000};  // A stranger is dropped after this time.
  // The most connections at a time that have not proven that they belong to the job. One more
  // drops the oldest.
  int max_strangers = 256;
  int max_strangers_per_address = 64;
  // TCP_USER_TIMEOUT: unacknowledged data older than this breaks a connection.
  Milliseconds silence_timeout{10000};
  // The limit after authentication. A connection with a larger message is dropped as corrupt.
  int64_t max_message_bytes = 256 << 20;
  // Called between a client's tries to connect; an exception ends them. It may be empty.
  std::function<void()> throw_if_hopeless = {};
};

using ConnectionId = uint64_t;

// Whether the peer, or the end of its process, closed the connection. `reason` is the one that
// `closed` was called with. False: the network broke the connection, and the peer may live.
bool ended_by_peer(const std::string& reason);

// The server calls these on its own thread, one call at a time; they must not block. An exception
// of `received` closes the connection of that message; the others must not throw.
struct ServerEvents {
  // The connection is authenticated.
  std::function<void(ConnectionId, const std::string& peer, Purpose)> opened;
  std::function<void(ConnectionId, Json message)> received;
  std::function<void(ConnectionId, const std::string& reason)> closed;
  std::function<void()> tick;  // Called about every 50 ms.
};

class ControlServer {
 public:
  // Listens on `listen` (port 0: any free port) and starts its thread. It binds to that address
  // only, never to all addresses. Throws Error(io) naming the address and the remedy if the
  // address is taken or not ours, and Error(invalid_argument) for an empty token or for an address
  // that means every interface.
  ControlServer(const Endpoint& listen, std::string token, ServerEvents events,
                ControlOptions options = {});
  ~ControlServer();  // stop()
  // Closes all connections and joins the thread. The events may still send while it runs; none is
  // called after it returns.
  void stop();
  Endpoint endpoint() const;
  // Queues a message; any thread may call it. Messages to unknown or closed connections are
  // dropped. Throws Error(invalid_argument) if the message is too long.
  void send(ConnectionId to, Json message);
  void close(ConnectionId connection);  // Closes after the queue was sent.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The client calls these on its own thread; they must not block.
struct ClientEvents {
  std::function<void(Json message)> received;
  // Called once, unless close() was called first.
  std::function<void(const std::string& reason)> closed;
};

class ControlClient {
 public:
  // Connects and authenticates both ends. It retries while the server does not answer. Throws
  // Error(timeout) naming the address and the last reason, or Error(invalid_argument) at once if
  // the token is wrong.
  ControlClient(const Endpoint& server, std::string token, ClientEvents events, Deadline deadline,
                ControlOptions options = {});
  ~ControlClient();
  // Queues a message; any thread may call it. Messages after the connection broke are dropped.
  // Throws Error(invalid_argument) if the message is too long.
  void send(Json message);
  // Sends the queue, then closes. Waits for both until the deadline.
  void close(Deadline deadline);
  std::string local_address() const;  // The address of this side of the connection.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether a server of the job still listens at its address. The answer tells a process that has
// ended from one that only cannot be reached.
enum class Reach {
  listens,    // A server listens there and has proven the token.
  other_job,  // Another programme, another job or a relay listens there now.
  refused,    // The host answered that no process listens there any more.
  silent,     // No answer came by the deadline, or no route exists. The process may live.
};
// The process that listened there has ended: another one may have its port by now.
inline bool is_gone(Reach reach) { return reach == Reach::refused || reach == Reach::other_job; }
Reach reach(const Endpoint& server, const std::string& token, Deadline deadline);

// The process at the address has another job token. If this job has published the address, then
// the process that published it has ended, and another job's process has its port by now.
class WrongToken : public Error {
 public:
  using Error::Error;
};

// Makes a new token: 32 random bytes as hex.
std::string make_token();

}  // namespace trireme::net
