#include <trireme/base/error.h>
#include <trireme/net/connection.h>
#include <trireme/net/control.h>
#include <trireme/net/dial.h>
#include <trireme/net/framing.h>
#include <trireme/net/sockets.h>
#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/use_awaitable.hpp>
#include <atomic>
#include <future>
#include <thread>

namespace trireme::net {

struct ControlClient::Impl {
  void connect(const Endpoint& server, const std::string& token, Deadline deadline);
  asio::awaitable<void> run();

  asio::io_context context{1};
  ClientEvents events;
  ControlOptions options;
  std::shared_ptr<Connection> connection;
  std::string local_address;
  std::atomic<bool> closing{false};
  std::promise<void> ended;
  std::shared_future<void> ended_future{ended.get_future()};
  std::thread thread;
};

void ControlClient::Impl::connect(const Endpoint& server, const std::string& token,
                                  Deadline deadline) {
  Dialled dialled = dial(context, server, token,
                         {.purpose = options.purpose,
                          .handshake_timeout = options.handshake_timeout,
                          .throw_if_hopeless = options.throw_if_hopeless},
                         deadline);
  tune(dialled.socket, options.silence_timeout);
  local_address = dialled.socket.local_endpoint().address().to_string();
  connection = std::make_shared<Connection>(std::move(dialled.socket), dialled.keys,
                                            options.max_message_bytes);
}

asio::awaitable<void> ControlClient::Impl::run() {
  const Connection::End end = co_await connection->run([this](Json message) {
    if (events.received) events.received(std::move(message));
  });
  if (!closing && events.closed) events.closed(end.reason);
  ended.set_value();
}

ControlClient::ControlClient(const Endpoint& server, std::string token, ClientEvents events,
                             Deadline deadline, ControlOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->events = std::move(events);
  impl_->options = options;
  impl_->connect(server, token, deadline);
  impl_->context.restart();
  asio::co_spawn(impl_->context, impl_->run(), [](std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
  });
  impl_->thread = std::thread([impl = impl_.get()] { impl->context.run(); });
}

ControlClient::~ControlClient() {
  impl_->context.stop();
  impl_->thread.join();
}

void ControlClient::send(Json message) {
  auto frame = encode_frame(message, impl_->options.max_message_bytes);
  asio::post(impl_->context, [impl = impl_.get(), frame = std::move(frame)]() mutable {
    impl->connection->send(std::move(frame));
  });
}

void ControlClient::close(Deadline deadline) {
  impl_->closing = true;
  asio::post(impl_->context, [impl = impl_.get()] { impl->connection->finish(); });
  impl_->ended_future.wait_until(deadline.at());
}

std::string ControlClient::local_address() const { return impl_->local_address; }

}  // namespace trireme::net
