#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/net/dial.h>
#include <trireme/net/sockets.h>
#include <asio/co_spawn.hpp>
#include <asio/error.hpp>
#include <asio/use_awaitable.hpp>
#include <optional>
#include <thread>

namespace trireme::net {
namespace {

using asio::ip::tcp;

constexpr Milliseconds kFirstPause{5};
constexpr Milliseconds kLongestPause{200};

// One try to connect to one address. It runs `context` on the calling thread.
struct Attempt {
  tcp::socket socket;
  const Purpose purpose;
  const Subject subject;
  std::optional<HandshakeEnd> end;
  SessionKeys keys;
  std::string failure;
  bool refused = false;

  Attempt(asio::io_context& context, Purpose of_connection, const Subject& names)
      : socket(context), purpose(of_connection), subject(names) {}

  asio::awaitable<void> connect(tcp::endpoint address, const std::string& token) {
    try {
      open_private(socket, address);
      co_await socket.async_connect(address, asio::use_awaitable);
      end = co_await shake_hands_as_client(socket, token, purpose, subject, keys);
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
      // The error only says that the try was cut short. An earlier try may know more.
      failure.clear();
    }
    return end == HandshakeEnd::accepted;
  }
};

}  // namespace

Dialled dial(asio::io_context& context, const Endpoint& server, const std::string& token,
             const DialOptions& options, Deadline deadline) {
  if (token.empty())
    throw Error(ErrorCode::invalid_argument, "net", "the job token is empty",
                "set TRIREME_JOB_TOKEN");
  std::string failure = "no answer";
  for (Milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const auto addresses = resolve(server, deadline);
    if (addresses.empty()) failure = "the name has no address";
    for (const tcp::endpoint& address : addresses) {
      Attempt attempt(context, options.purpose, options.subject);
      const auto until =
          std::min(deadline.at(), Deadline::Clock::now() + options.handshake_timeout);
      if (attempt.succeed(context, address, token, until))
        return {std::move(attempt.socket), attempt.keys};
      if (attempt.end == HandshakeEnd::wrong_token)
        throw WrongToken(
            ErrorCode::invalid_argument, "net",
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
              fmt::format("check that {} runs there and can be reached from here, or allow "
                          "more time",
                          options.callee));
}

Reach reach(const Endpoint& server, const std::string& token, Deadline deadline) {
  bool refused = false, other_job = false;
  for (const tcp::endpoint& address : resolve(server, deadline)) {
    asio::io_context context{1};
    Attempt attempt(context, Purpose::probe, Subject{});
    if (attempt.succeed(context, address, token, deadline.at())) return Reach::listens;
    refused = refused || attempt.refused;
    other_job = other_job || attempt.end;
  }
  return other_job ? Reach::other_job : refused ? Reach::refused : Reach::silent;
}

}  // namespace trireme::net
