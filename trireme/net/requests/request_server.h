// The server of a request channel: several threads read requests, handle them and answer.
//
//   RequestServer server({"127.0.0.1", 0}, token, {.handle = [](Request request, Responder answer)
//   {
//     answer.reply({.header = "done"});
//   }});
//
// The thread that reads a request also handles it and writes the answer. Meanwhile the other
// threads read the next requests, also of the same client.
#pragma once
#include <trireme/net/message.h>
#include <trireme/net/requests/frame_reader.h>
#include <trireme/net/requests/message.h>
#include <memory>
#include <string>

namespace trireme::net {

struct Request {
  Head head;
  Places tensors;               // The bytes of the tensors that `head` lists.
  std::shared_ptr<void> owner;  // Keeps the memory of `tensors`, as placed.
  std::string client;           // "127.0.0.1:41234 (pid 12 on node1)"
};

// Answers one request, once: from the handler, or later from any thread. A request that is dropped
// without an answer is answered with Error(internal).
class Responder {
 public:
  Responder(Responder&&) noexcept = default;
  Responder& operator=(Responder&&) noexcept;
  ~Responder();

  // Sends the answer; the message's data may change after the call. It waits while the client does
  // not read, until the client is lost. Returns false if nobody waits for the answer any more.
  // Throws Error(invalid_argument), and the request stays without an answer, if the message is
  // over the client's limits. Throws Error(internal) if the request was answered before.
  bool reply(const Message& message);
  // Stands in front of the reply's header. Call it before anybody may answer.
  void put_before(std::string text);
  // Ends the client's call with an Error of this code.
  bool fail(ErrorCode code, std::string_view what, std::string_view remedy = {});
  // Whether the client gave up, was lost, or this server ends. Long work may look now and then.
  // That the client gave up is read by a free thread: while all are busy, it is not known.
  bool cancelled() const;

  struct State;
  explicit Responder(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  State& state() const;
  std::shared_ptr<State> state_;
};

// Both functions run on the server's threads, several at a time. A call to the same server from
// within waits for another free thread. An exception of either is the
// answer to the request; an Error keeps its code.
struct RequestHandler {
  // Chooses memory for the tensors of a request when its head has come, before they are read. If
  // the client is lost meanwhile, the placement's owner is released and the request is never
  // handled; part of the memory may have been written. If empty, the server allocates. It is not
  // called for a request without tensors.
  std::function<Placement(const Head&)> place = {};
  std::function<void(Request, Responder)> handle;
};

struct RequestServerOptions : ChannelOptions {
  int threads = 2;                       // Requests that are handled at the same time.
  int max_clients = 1024;                // One more is refused, with this reason.
  Milliseconds handshake_timeout{5000};  // A stranger is dropped after this time.
};

class RequestServer {
 public:
  // Listens on exactly this address (port 0: any free port) and starts its threads. Throws
  // Error(io) naming the address, or Error(invalid_argument) for a wrong option or an empty token.
  RequestServer(const Endpoint& listen, std::string token, RequestHandler handler,
                RequestServerOptions options = {});
  // Closes all connections, and waits for the handlers that run. Responders that are still kept
  // answer nobody.
  ~RequestServer();

  Endpoint endpoint() const;
  int clients() const;  // The clients that are connected now.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::net
