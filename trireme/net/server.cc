#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/net/complaints.h>
#include <trireme/net/connection.h>
#include <trireme/net/control.h>
#include <trireme/net/doorkeeper.h>
#include <trireme/net/framing.h>
#include <trireme/net/sockets.h>
#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <thread>
#include <unordered_map>

namespace trireme::net {
namespace {

constexpr Milliseconds kTick{50};

void fail_loudly(std::exception_ptr error) {
  if (error) std::rethrow_exception(error);
}

DoorOptions door_options(std::string token, const ControlOptions& options) {
  return {.terms = {.token = std::move(token),
                    .expects =
                        [](Purpose purpose, const Subject& subject) {
                          return purpose >= Purpose::worker && purpose <= Purpose::probe &&
                                 subject == Subject{};
                        }},
          .patience = options.handshake_timeout,
          .max_strangers = static_cast<size_t>(options.max_strangers),
          .max_per_address = static_cast<size_t>(options.max_strangers_per_address)};
}

}  // namespace

struct ControlServer::Impl {
  Impl(const Endpoint& listen, std::string token, ServerEvents job_events,
       ControlOptions job_options)
      : events(std::move(job_events)),
        options(job_options),
        door(context, listen, door_options(std::move(token), options),
             [this](Doorkeeper::Guest guest) {
               asio::co_spawn(context, serve(std::move(guest)), fail_loudly);
             }) {}

  asio::awaitable<void> tick();
  asio::awaitable<void> serve(Doorkeeper::Guest guest);

  asio::io_context context{1};
  const ServerEvents events;
  const ControlOptions options;
  Doorkeeper door;
  // The complaints about members that broke the protocol, by host. A member may connect again and
  // again.
  Complaints complaints{[](const std::string& line) { log_warning("net: {}", line); }};
  std::unordered_map<ConnectionId, std::shared_ptr<Connection>> connections;
  ConnectionId next_id = 1;
  std::thread thread;
};

asio::awaitable<void> ControlServer::Impl::tick() {
  asio::steady_timer timer(context);
  for (;;) {
    timer.expires_after(kTick);
    co_await timer.async_wait(asio::use_awaitable);
    complaints.tick(Complaints::Clock::now());
    if (events.tick) events.tick();
  }
}

asio::awaitable<void> ControlServer::Impl::serve(Doorkeeper::Guest guest) {
  tune(guest.socket, options.silence_timeout);
  const ConnectionId id = next_id++;
  const auto connection =
      std::make_shared<Connection>(std::move(guest.socket), guest.keys, options.max_message_bytes);
  connections.emplace(id, connection);
  if (events.opened) events.opened(id, guest.peer, guest.hello.purpose);
  const Connection::End end = co_await connection->run([this, id](Json message) {
    if (events.received) events.received(id, std::move(message));
  });
  connections.erase(id);
  if (end.corrupt)
    complaints.add(parse_endpoint(guest.peer).host,
                   fmt::format("closed the connection of {} on {}: {}", guest.peer,
                               door.endpoint().describe(), end.reason),
                   Complaints::Clock::now());
  if (events.closed) events.closed(id, end.reason);
}

ControlServer::ControlServer(const Endpoint& listen, std::string token, ServerEvents events,
                             ControlOptions options) {
  if (token.empty())
    throw Error(ErrorCode::invalid_argument, "net", "the job token is empty",
                "set TRIREME_JOB_TOKEN");
  impl_ = std::make_unique<Impl>(listen, std::move(token), std::move(events), options);
  asio::co_spawn(impl_->context, impl_->tick(), fail_loudly);
  impl_->thread = std::thread([impl = impl_.get()] { impl->context.run(); });
}

ControlServer::~ControlServer() { stop(); }

void ControlServer::stop() {
  impl_->context.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

Endpoint ControlServer::endpoint() const { return impl_->door.endpoint(); }

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
