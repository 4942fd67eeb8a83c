#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/net/connection.h>
#include <trireme/net/control.h>
#include <trireme/net/framing.h>
#include <trireme/net/handshake.h>
#include <trireme/net/sockets.h>
#include <asio/co_spawn.hpp>
#include <asio/error.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/use_awaitable.hpp>
#include <atomic>
#include <future>
#include <thread>

namespace trireme::net {
namespace {

using asio::ip::tcp;

constexpr Milliseconds kFirstPause{5};
constexpr Milliseconds kLongestPause{200};

// One try to reach one address. Runs `context` on the calling thread.
struct Attempt {
  tcp::socket socket;
  const Purpose purpose;
  std::optional<HandshakeEnd> end;
  SessionKeys keys;
  std::string failure;
  bool refused = false;

  Attempt(asio::io_context& context, Purpose of_connection)
      : socket(context), purpose(of_connection) {}

  asio::awaitable<void> connect(tcp::endpoint address, const std::string& token) {
    try {
      open_private(socket, address);
      co_await socket.async_connect(address, asio::use_awaitable);
      end = co_await shake_hands_as_client(socket, token, purpose, Subject{}, keys);
      failure = describe_for_client(*end);
    } catch (const std::system_error& error) {
      failure = error.code().message();
      refused = error.code() == asio::error::connection_refused;
    }
  }

  bool succeed(asio::io_context& context, const tcp::endpoint& address, const std::string& token,
               Deadline::Clock::time_point until) {
    bool returned = false;
    asio::co_spawn(context, connect(address, token), [&](std::exception_ptr) { returned = true; });
    context.restart();
    context.run_until(until);
    if (!returned) {
      socket.close();
      context.restart();
      context.run();
      failure.clear();  // Says only that it was cut short; an earlier try may know more.
    }
    return end == HandshakeEnd::accepted;
  }
};

}  // namespace

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
  std::string failure = "no answer";
  for (Milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const auto addresses = resolve(server, deadline);
    if (addresses.empty()) failure = "the name has no address";
    for (const tcp::endpoint& address : addresses) {
      Attempt attempt(context, options.purpose);
      const auto until =
          std::min(deadline.at(), Deadline::Clock::now() + options.handshake_timeout);
      if (attempt.succeed(context, address, token, until)) {
        tune(attempt.socket, options.silence_timeout);
        local_address = attempt.socket.local_endpoint().address().to_string();
        connection = std::make_shared<Connection>(std::move(attempt.socket), attempt.keys,
                                                  options.max_message_bytes);
        return;
      }
      if (attempt.end == HandshakeEnd::wrong_token)
        throw Error(ErrorCode::invalid_argument, "net",
                    fmt::format("the job token of this process differs from that of the job at {}",
                                server.describe()),
                    "the same TRIREME_JOB_TOKEN (or the same file in TRIREME_JOB_TOKEN_FILE) for "
                    "all workers");
      if (!attempt.failure.empty()) failure = attempt.failure;
    }
    if (options.throw_if_hopeless) options.throw_if_hopeless();
    if (deadline.remaining() <= pause) break;
    std::this_thread::sleep_for(pause);
  }
  throw Error(ErrorCode::timeout, "net",
              fmt::format("no connection to {} within {}: {}", server.describe(),
                          format_duration(deadline.allowed()), failure),
              "check that the job's coordinator runs there and can be reached from here, or allow "
              "more time");
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
  if (token.empty())
    throw Error(ErrorCode::invalid_argument, "net", "the job token is empty",
                "set TRIREME_JOB_TOKEN");
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

Reach reach(const Endpoint& server, const std::string& token, Deadline deadline) {
  bool refused = false, other_job = false;
  for (const tcp::endpoint& address : resolve(server, deadline)) {
    asio::io_context context{1};
    Attempt attempt(context, Purpose::probe);
    if (attempt.succeed(context, address, token, deadline.at())) return Reach::listens;
    refused = refused || attempt.refused;
    other_job = other_job || attempt.end;
  }
  return other_job ? Reach::other_job : refused ? Reach::refused : Reach::silent;
}

}  // namespace trireme::net
