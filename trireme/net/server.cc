#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/net/connection.h>
#include <trireme/net/control.h>
#include <trireme/net/framing.h>
#include <trireme/net/handshake.h>
#include <trireme/net/sockets.h>
#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <list>
#include <thread>
#include <unordered_map>

namespace trireme::net {
namespace {

using asio::ip::tcp;

constexpr Milliseconds kTick{50};
constexpr Milliseconds kPauseWhenFull{100};  // Out of descriptors: others may close theirs.

// Someone who has not proven the token: a socket, a few fixed-size fields and a place in the list.
struct Stranger {
  Stranger(Accepted accepted)
      : socket(std::move(accepted.socket)),
        peer(std::move(accepted.peer)),
        patience(socket.get_executor()) {}

  void drop(std::string reason) {
    if (dropped_because.empty()) dropped_because = std::move(reason);
    std::error_code ignored;
    socket.close(ignored);
  }

  tcp::socket socket;
  const std::string peer;
  asio::steady_timer patience;
  std::string dropped_because;
};
using StrangerPtr = std::shared_ptr<Stranger>;

void fail_loudly(std::exception_ptr error) {
  if (error) std::rethrow_exception(error);
}

}  // namespace

struct ControlServer::Impl {
  Impl(const Endpoint& listen, std::string job_token, ServerEvents job_events,
       ControlOptions job_options)
      : acceptor(listen_on(context, listen)),
        bound{listen.host, acceptor.local_endpoint().port()},
        token(std::move(job_token)),
        events(std::move(job_events)),
        options(job_options) {}

  asio::awaitable<void> accept_all();
  asio::awaitable<void> tick();
  void make_room();
  void greet(Accepted accepted);
  asio::awaitable<void> serve(StrangerPtr stranger);
  asio::awaitable<std::string> admit(StrangerPtr stranger);

  asio::io_context context{1};
  tcp::acceptor acceptor;
  const Endpoint bound;
  const std::string token;
  const ServerEvents events;
  const ControlOptions options;
  std::list<StrangerPtr> strangers;  // Oldest first.
  std::unordered_map<ConnectionId, std::shared_ptr<Connection>> connections;
  ConnectionId next_id = 1;
  std::thread thread;
};

asio::awaitable<void> ControlServer::Impl::accept_all() {
  asio::steady_timer pause(context);
  for (;;) {
    co_await acceptor.async_wait(tcp::acceptor::wait_read, asio::use_awaitable);
    std::string full;
    try {
      Accepted accepted = accept_private(acceptor);
      if (!accepted.peer.empty()) greet(std::move(accepted));
    } catch (const std::system_error& error) {
      full = error.code().message();
    }
    if (full.empty()) continue;
    log_warning("net: cannot accept a connection on {}: {}", bound.describe(), full);
    pause.expires_after(kPauseWhenFull);
    co_await pause.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<void> ControlServer::Impl::tick() {
  asio::steady_timer timer(context);
  for (;;) {
    timer.expires_after(kTick);
    co_await timer.async_wait(asio::use_awaitable);
    if (events.tick) events.tick();
  }
}

// The oldest goes: silent strangers cannot keep a worker out, which needs its place for
// milliseconds only.
void ControlServer::Impl::make_room() {
  if (strangers.size() < static_cast<size_t>(options.max_strangers)) return;
  strangers.front()->drop(
      fmt::format("more than {} connections without proof", options.max_strangers));
  strangers.pop_front();
}

void ControlServer::Impl::greet(Accepted accepted) {
  make_room();
  const auto stranger = std::make_shared<Stranger>(std::move(accepted));
  strangers.push_back(stranger);
  stranger->patience.expires_after(options.handshake_timeout);
  stranger->patience.async_wait([this, stranger](std::error_code cancelled) {
    if (!cancelled)
      stranger->drop("no proof of the job token within " +
                     format_duration(options.handshake_timeout));
  });
  asio::co_spawn(context, serve(stranger), fail_loudly);
}

// Empty if the stranger has proven the token; otherwise why not.
asio::awaitable<std::string> ControlServer::Impl::admit(StrangerPtr stranger) {
  std::string refusal;
  try {
    switch (co_await shake_hands_as_server(stranger->socket, token)) {
      case HandshakeEnd::accepted: break;
      case HandshakeEnd::wrong_magic: refusal = "its bytes are not Trireme's protocol"; break;
      case HandshakeEnd::wrong_token: refusal = "its job token differs from this job's"; break;
    }
  } catch (const std::system_error& error) {
    refusal = "it left before proving the job token (" + error.code().message() + ")";
  }
  stranger->patience.cancel();
  strangers.remove(stranger);
  co_return stranger->dropped_because.empty() ? refusal : stranger->dropped_because;
}

asio::awaitable<void> ControlServer::Impl::serve(StrangerPtr stranger) {
  const std::string peer = stranger->peer;
  if (const std::string refusal = co_await admit(stranger); !refusal.empty()) {
    log_warning("net: ignored {} on {}: {}", peer, bound.describe(), refusal);
    co_return;
  }
  tune(stranger->socket, options.silence_timeout);
  const ConnectionId id = next_id++;
  const auto connection =
      std::make_shared<Connection>(std::move(stranger->socket), options.max_message_bytes);
  stranger.reset();
  connections.emplace(id, connection);
  if (events.opened) events.opened(id, peer);
  const Connection::End end = co_await connection->run([this, id](Json message) {
    if (events.received) events.received(id, std::move(message));
  });
  connections.erase(id);
  if (end.corrupt)
    log_warning("net: closed the connection of {} on {}: {}", peer, bound.describe(), end.reason);
  if (events.closed) events.closed(id, end.reason);
}

ControlServer::ControlServer(const Endpoint& listen, std::string token, ServerEvents events,
                             ControlOptions options) {
  if (token.empty())
    throw Error(ErrorCode::invalid_argument, "net", "the job token is empty",
                "set TRIREME_JOB_TOKEN");
  impl_ = std::make_unique<Impl>(listen, std::move(token), std::move(events), options);
  asio::co_spawn(impl_->context, impl_->accept_all(), fail_loudly);
  asio::co_spawn(impl_->context, impl_->tick(), fail_loudly);
  impl_->thread = std::thread([impl = impl_.get()] { impl->context.run(); });
}

ControlServer::~ControlServer() { stop(); }

void ControlServer::stop() {
  impl_->context.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

Endpoint ControlServer::endpoint() const { return impl_->bound; }

void ControlServer::send(ConnectionId to, Json message) {
  auto frame = encode_frame(message, impl_->options.max_message_bytes);
  asio::post(impl_->context, [impl = impl_.get(), to, frame = std::move(frame)]() mutable {
    if (const auto found = impl->connections.find(to); found != impl->connections.end())
      found->second->send(std::move(frame));
  });
}

void ControlServer::close(ConnectionId connection) {
  asio::post(impl_->context, [impl = impl_.get(), connection] {
    if (const auto found = impl->connections.find(connection); found != impl->connections.end())
      found->second->finish();
  });
}

}  // namespace trireme::net
