// A server's end of one channel: its requests that are under way, and the rule that one thread at
// a time reads it.
#pragma once
#include <trireme/net/requests/channel.h>
#include <trireme/net/requests/request_server.h>
#include <mutex>
#include <unordered_map>

namespace trireme::net {

class ServerConnection : public std::enable_shared_from_this<ServerConnection> {
 public:
  ServerConnection(uint64_t number, std::unique_ptr<Channel> opened)
      : id(number), channel(std::move(opened)) {}

  // Only one thread reads. A thread that is refused may leave: the reader looks again after it has
  // stopped reading. On a closed connection the last of them releases the memory of a request that
  // has not come whole.
  bool begin_reading() { return !reading_.exchange(true); }
  void end_reading();

  // Reads the next request. Handles cancellations and signs of life on the way. Empty if no whole
  // request is there. Throws when the connection has ended or its bytes are no frames.
  struct Arrived {
    Request request;
    std::shared_ptr<Responder::State> state;
    std::exception_ptr problem;  // The request was not placed.
  };
  std::optional<Arrived> read(const RequestHandler& handler);

  // Sends an answer to a request that has none. Returns false if nobody waits for it. Anything
  // that goes wrong on the way ends the connection.
  bool answer(uint64_t id, std::vector<std::byte> front, const Message& message);
  void forget(uint64_t id);  // The request was answered.
  void close();              // Ends the connection and cancels its requests. Any thread.
  bool is_closed() const { return closed_; }

  const uint64_t id;
  const std::unique_ptr<Channel> channel;
  Deadline::Clock::time_point next_tick;  // Only the server's keeper uses it.

 private:
  void place(ReceivedFrame& frame, const RequestHandler& handler);
  Arrived arrived(ReceivedFrame frame);
  void cancel(uint64_t id);

  std::atomic<bool> reading_{false}, closed_{false};
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::weak_ptr<Responder::State>> under_way_;
};

struct Responder::State {
  State(std::shared_ptr<ServerConnection> from, uint64_t request)
      : connection(std::move(from)), id(request) {}
  bool reply(const Message& message);
  bool fail(ErrorCode code, std::string_view what, std::string_view remedy);
  bool fail(const std::exception& error);
  // A responder was dropped. While its handler runs, the handler's end decides what is answered.
  void drop();
  void end_of_handler(const std::exception* error);

  const std::shared_ptr<ServerConnection> connection;
  const uint64_t id;
  std::string before;  // Of the header of a reply.
  std::atomic<bool> cancelled{false};

 private:
  void claim();
  bool send(std::vector<std::byte> front, const Message& message);

  std::mutex mutex_;
  bool answered_ = false, dropped_ = false, in_handler_ = true;
};

}  // namespace trireme::net
