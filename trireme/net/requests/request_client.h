// The client of a request channel: sends a header and tensors to a server, and receives the answer
// directly into memory that the caller names.
//
//   RequestClient client(server, token, Deadline::after(Milliseconds(10000)));
//   Reply reply = client.call({.header = R"({"op": "pull"})"}, {places of the tensors},
//                             Deadline::after(Milliseconds(60000)), "pull");
//
// Any number of threads may call at the same time. A thread that waits reads the connection
// itself, for all threads of this client, so no hand-over between threads stands in the way of an
// answer.
#pragma once
#include <trireme/net/message.h>
#include <trireme/net/requests/message.h>
#include <memory>
#include <string>

namespace trireme::net {

using Reply = Head;  // The tensors' bytes are in the memory that the caller named.

// Chooses memory for the tensors of a reply when its head has come. The thread that reads calls
// it, which may be another caller's. It must not wait, nor use the client. An exception ends the
// call.
using ChoosePlaces = std::function<Places(const Head&)>;

class RequestClient;

// A request that was sent and whose answer is due. It may outlive the client, whose end ends it.
class PendingReply {
 public:
  PendingReply(PendingReply&&) noexcept;
  PendingReply& operator=(PendingReply&&) noexcept;
  // Tells the server that the answer is no longer wanted, and drops it when it comes. The memory
  // is the caller's again.
  ~PendingReply();
  // Waits for the answer. The errors are those of RequestClient::call(). A second call throws
  // Error(internal).
  Reply wait(Deadline deadline);

 private:
  friend class RequestClient;
  struct Call;
  struct Impl;
  explicit PendingReply(std::shared_ptr<Impl> impl, std::unique_ptr<Call> call);
  std::shared_ptr<Impl> impl_;
  std::unique_ptr<Call> call_;
};

class RequestClient {
 public:
  // Connects, and proves the job token in both directions. Tries again while the server does not
  // answer. Throws Error(timeout | invalid_argument | unsupported | peer_lost) naming the server;
  // a wrong token is WrongToken.
  RequestClient(const Endpoint& server, const std::string& token, Deadline deadline,
                ChannelOptions options = {});
  // No other thread may be in a call. Requests that wait at the server are cancelled.
  ~RequestClient();

  // Sends the request and waits for its answer. `places` has memory for each tensor of the reply,
  // which nothing writes to after the call has returned or thrown. `name` stands in messages.
  // A deadline without limit is Deadline::after(kLongestWait).
  //
  // Throws, and leaves the channel usable:
  //   Error(timeout)           the deadline passed; a late answer is dropped
  //   Error(invalid_argument)  the request is over the server's limits, or the reply's tensors do
  //                            not have the sizes of `places`
  //   the handler's error      with its code, naming the server
  // A deadline that passes while more than 64 MiB of a request are not sent ends the channel too.
  // Throws Error(peer_lost) naming the server if the connection ended or the server was silent for
  // ChannelOptions::silence. Every later call then throws it at once: make a new client.
  Reply call(const Message& request, const Places& places, Deadline deadline,
             std::string_view name = "request");
  Reply call(const Message& request, ChoosePlaces choose, Deadline deadline,
             std::string_view name = "request");

  // Only sends. The deadline is that of the sending; the message's data is the caller's again.
  PendingReply start(const Message& request, ChoosePlaces choose, Deadline deadline,
                     std::string_view name = "request");

  bool is_lost() const;               // Every call throws Error(peer_lost) from now on.
  RequestPath path() const;           // The path of the bytes: tcp or shm.
  const std::string& server() const;  // "127.0.0.1:29500 (pid 12 on node1)"

 private:
  std::shared_ptr<PendingReply::Impl> impl_;
};

// Places for a reply whose sizes are known: for start().
inline ChoosePlaces into(Places places) {
  return [places = std::move(places)](const Head&) { return places; };
}

}  // namespace trireme::net
