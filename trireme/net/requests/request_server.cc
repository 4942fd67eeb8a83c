#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/net/futex.h>
#include <trireme/net/requests/opening.h>
#include <trireme/net/requests/server_connection.h>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>

namespace trireme::net {
namespace {

constexpr Milliseconds kServerTick{5};
// The time for which a worker stays with one connection while others wait.
constexpr Milliseconds kTurn{1};
// The numbers of epoll's events: a connection's number, doubled. The lower bit says that the event
// is the socket of a connection whose bytes go through shared memory.
constexpr uint64_t kRelay = 0;

RequestServerOptions checked(RequestServerOptions options, const std::string& token,
                             const RequestHandler& handler) {
  const auto refuse_server = [](const std::string& what, std::string_view remedy) {
    throw Error(ErrorCode::invalid_argument, "net", what, remedy);
  };
  check_channel_options(options);
  if (token.empty()) refuse_server("the job token is empty", "set TRIREME_JOB_TOKEN");
  if (!handler.handle) refuse_server("RequestHandler::handle is empty", "a function");
  if (options.threads < 1 || options.threads > 1024)
    refuse_server(fmt::format("RequestServerOptions::threads is {}", options.threads),
                  "1 to 1024");
  if (options.max_clients < 1)
    refuse_server(fmt::format("RequestServerOptions::max_clients is {}", options.max_clients),
                  "1 or more");
  return options;
}

DoorOptions door_of(const std::string& token, const RequestServerOptions& options) {
  const auto expects = [subject = subject_of(options.service)](Purpose purpose,
                                                               const Subject& called) {
    return purpose == Purpose::requests && called == subject;
  };
  return {.terms = {.token = token, .expects = expects}, .patience = options.handshake_timeout};
}

Descriptor kernel_object(int number, const char* what) {
  if (number < 0)
    throw Error(ErrorCode::io, "net", fmt::format("{}: {}", what, std::strerror(errno)),
                "ulimit -n");
  return Descriptor(number);
}

}  // namespace

using ConnectionPtr = std::shared_ptr<ServerConnection>;

struct RequestServer::Impl {
  Impl(const Endpoint& listen, const std::string& token, RequestHandler given,
       RequestServerOptions given_options);
  ~Impl();

  // On the context's thread.
  asio::awaitable<void> admit(Doorkeeper::Guest guest);
  asio::awaitable<void> tick();

  // On the workers' threads.
  void work();
  void serve(const ConnectionPtr& connection);
  void handle(ServerConnection::Arrived arrived);
  bool spin(ServerConnection& connection);
  bool others_wait() const;

  bool watch(ServerConnection& connection, bool on, int operation);
  void let_others_read(ServerConnection& connection);
  bool rest(ServerConnection& connection);
  void announce(uint64_t id);
  ConnectionPtr find(uint64_t id);
  ConnectionPtr take_announced();
  void close(const ConnectionPtr& connection, const std::string& complaint);
  std::vector<ConnectionPtr> all();

  const RequestHandler handler;
  const RequestServerOptions options;
  const Descriptor epoll, relay;
  std::atomic<bool> stopping{false};
  std::mutex mutex;  // Guards the next four.
  std::unordered_map<uint64_t, ConnectionPtr> connections;
  std::deque<uint64_t> announced;  // Connections with bytes that epoll does not see.
  uint64_t next_id = 1;
  int openings = 0;  // Clients that have proven the token, and have no channel yet.
  asio::io_context context{1};
  Doorkeeper door;
  std::thread keeper;
  std::vector<std::thread> workers;
};

RequestServer::Impl::Impl(const Endpoint& listen, const std::string& token, RequestHandler given,
                          RequestServerOptions given_options)
    : handler(std::move(given)),
      options(checked(std::move(given_options), token, handler)),
      epoll(kernel_object(epoll_create1(EPOLL_CLOEXEC), "an epoll set")),
      relay(kernel_object(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE), "an eventfd")),
      door(context, listen, door_of(token, options), [this](Doorkeeper::Guest guest) {
        asio::co_spawn(context, admit(std::move(guest)), asio::detached);
      }) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kRelay}};
  epoll_ctl(epoll.get(), EPOLL_CTL_ADD, relay.get(), &event);
  asio::co_spawn(context, tick(), asio::detached);
  keeper = std::thread([this] { context.run(); });
  for (int i = 0; i < options.threads; ++i) workers.emplace_back([this] { work(); });
}

RequestServer::Impl::~Impl() {
  stopping = true;
  context.stop();
  keeper.join();
  for (const ConnectionPtr& connection : all()) connection->close();
  const uint64_t each = options.threads;
  (void)!::write(relay.get(), &each, sizeof each);
  for (std::thread& worker : workers) worker.join();
}

asio::awaitable<void> RequestServer::Impl::admit(Doorkeeper::Guest guest) {
  asio::steady_timer patience(context);
  patience.expires_after(kOpeningTime);
  const auto opens = std::make_shared<bool>(true);
  patience.async_wait([&guest, opens](std::error_code cancelled) {
    std::error_code ignored;
    if (!cancelled && *opens) guest.socket.close(ignored);
  });
  std::string refusal, failure;
  {
    std::lock_guard lock(mutex);
    const int present = static_cast<int>(connections.size()) + openings++;
    if (present >= options.max_clients)
      refusal = fmt::format("the server has {} clients, the most it takes", present);
  }
  std::unique_ptr<Channel> channel;
  try {
    channel = co_await open_as_server(guest, options, refusal);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  *opens = false;
  patience.cancel();
  if (!failure.empty())
    log_warning("net: on {}: no request channel with {}: {}", door.endpoint().describe(),
                guest.peer, failure);
  ConnectionPtr connection;
  {
    std::lock_guard lock(mutex);
    --openings;
    if (!channel) co_return;
    const uint64_t id = next_id++;
    connection = std::make_shared<ServerConnection>(id, std::move(channel));
    connections.emplace(id, connection);
  }
  if (!watch(*connection, true, EPOLL_CTL_ADD))
    close(connection, fmt::format("epoll: {}", std::strerror(errno)));
}

// Finds silent clients and sends signs of life, for each connection in its own period.
asio::awaitable<void> RequestServer::Impl::tick() {
  asio::steady_timer timer(context);
  for (;;) {
    Milliseconds period = std::clamp(options.silence / 6, kServerTick, Milliseconds(250));
    const auto now = Deadline::Clock::now();
    for (const ConnectionPtr& connection : all()) {
      Channel& channel = *connection->channel;
      period = std::min(period, channel.tick_period());
      if (now < connection->next_tick) continue;
      connection->next_tick = now + channel.tick_period();
      if (const auto lost = channel.tick(now)) close(connection, *lost);
    }
    timer.expires_after(period);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

std::vector<ConnectionPtr> RequestServer::Impl::all() {
  std::lock_guard lock(mutex);
  std::vector<ConnectionPtr> present;
  for (const auto& [id, connection] : connections) present.push_back(connection);
  return present;
}

ConnectionPtr RequestServer::Impl::find(uint64_t id) {
  std::lock_guard lock(mutex);
  const auto found = connections.find(id);
  return found == connections.end() ? nullptr : found->second;
}

// Makes epoll announce new bytes of a connection to one worker, or to none. Returns false if the
// kernel refused.
bool RequestServer::Impl::watch(ServerConnection& connection, bool on, int operation) {
  Stream& stream = connection.channel->stream;
  epoll_event event{.events = EPOLLONESHOT | (on ? EPOLLIN : 0u),
                    .data = {.u64 = 2 * connection.id}};
  if (!stream.in_memory()) return epoll_ctl(epoll.get(), operation, stream.socket(), &event) == 0;
  // A bell rings only while the reader says that it sleeps, so it can stay in the set.
  if (operation == EPOLL_CTL_ADD) {
    event.events = EPOLLIN | EPOLLET;
    if (epoll_ctl(epoll.get(), operation, stream.bell(), &event) != 0) return false;
    event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {.u64 = 2 * connection.id + 1}};
    if (epoll_ctl(epoll.get(), operation, stream.socket(), &event) != 0) return false;
  }
  if (!on) {
    stream.reader_wakes();
    return true;
  }
  stream.reader_sleeps();
  if (operation == EPOLL_CTL_ADD && stream.unread()) announce(connection.id);
  return true;
}

void RequestServer::Impl::announce(uint64_t id) {
  {
    std::lock_guard lock(mutex);
    announced.push_back(id);
  }
  const uint64_t one = 1;
  (void)!::write(relay.get(), &one, sizeof one);
}

ConnectionPtr RequestServer::Impl::take_announced() {
  uint64_t one = 0;
  if (::read(relay.get(), &one, sizeof one) != sizeof one) return nullptr;
  std::lock_guard lock(mutex);
  if (announced.empty()) return nullptr;
  const auto found = connections.find(announced.front());
  announced.pop_front();
  return found == connections.end() ? nullptr : found->second;
}

void RequestServer::Impl::close(const ConnectionPtr& connection, const std::string& complaint) {
  {
    std::lock_guard lock(mutex);
    if (connections.erase(connection->id) == 0) return;
  }
  Stream& stream = connection->channel->stream;
  epoll_ctl(epoll.get(), EPOLL_CTL_DEL, stream.socket(), nullptr);
  if (stream.in_memory()) epoll_ctl(epoll.get(), EPOLL_CTL_DEL, stream.bell(), nullptr);
  connection->close();
  if (!complaint.empty())
    log_warning("net: on {}: closed the request channel of {}: {}", door.endpoint().describe(),
                connection->channel->peer.name, complaint);
}

void RequestServer::Impl::work() {
  while (!stopping) {
    epoll_event event{};
    const int count = epoll_wait(epoll.get(), &event, 1, -1);
    if (stopping) return;
    if (count <= 0) continue;
    const uint64_t number = event.data.u64;
    const ConnectionPtr connection = number == kRelay ? take_announced() : find(number / 2);
    if (!connection) continue;
    if (number % 2 == 1) connection->channel->stream.look_for_end();
    serve(connection);
  }
}

// Reads the requests of a connection and handles them, until no more bytes come, or the turn of
// the connection is over and others wait.
void RequestServer::Impl::serve(const ConnectionPtr& connection) {
  if (connection->is_closed()) return close(connection, {});
  if (!connection->begin_reading()) return;
  bool reads = true;
  auto turn_ends = Deadline::Clock::now() + kTurn;
  const auto turn_is_over = [&] {
    const auto now = Deadline::Clock::now();
    if (now < turn_ends) return false;
    if (others_wait()) return true;
    turn_ends = now + kTurn;
    return false;
  };
  try {
    for (;;) {
      auto arrived = connection->read(handler);
      if (!arrived) {
        if (!turn_is_over() && spin(*connection)) continue;
        reads = false;
        if (rest(*connection)) return;
        reads = true;
        continue;
      }
      // Another worker reads on, while this one handles the request.
      reads = false;
      let_others_read(*connection);
      handle(std::move(*arrived));
      if (stopping || turn_is_over() || !connection->begin_reading()) return;
      reads = true;
      watch(*connection, false, EPOLL_CTL_MOD);
    }
  } catch (const std::system_error&) {
    close(connection, {});  // The client has ended.
  } catch (const std::exception& error) {
    close(connection, error.what());
  }
  if (reads) connection->end_reading();
}

// Whether epoll has something for a worker. One call for each turn costs little.
bool RequestServer::Impl::others_wait() const {
  pollfd set{epoll.get(), POLLIN, 0};
  return ::poll(&set, 1, 0) > 0;
}

void RequestServer::Impl::let_others_read(ServerConnection& connection) {
  // Epoll does not see bytes in the reader's buffer, nor those that came before the reader slept.
  const bool holds = connection.channel->reader.holds_bytes();
  connection.end_reading();
  if (holds) return announce(connection.id);
  watch(connection, true, EPOLL_CTL_MOD);
  const Stream& stream = connection.channel->stream;
  if (stream.in_memory() && stream.unread()) announce(connection.id);
}

// Stops reading until epoll announces new bytes. Returns false if some came meanwhile, and this
// worker reads on.
bool RequestServer::Impl::rest(ServerConnection& connection) {
  connection.end_reading();
  watch(connection, true, EPOLL_CTL_MOD);
  const Stream& stream = connection.channel->stream;
  return !stream.in_memory() || !stream.unread() || !connection.begin_reading();
}

// Looks for further bytes for a moment. Returns true if some came.
bool RequestServer::Impl::spin(ServerConnection& connection) {
  Stream& stream = connection.channel->stream;
  const auto until = Deadline::Clock::now() + options.spin;
  while (!stopping && Deadline::Clock::now() < until) {
    for (int i = 0; stream.in_memory() && i < 64; ++i) {
      if (stream.unread()) return true;
      pause_core();
    }
    if (stream.unread()) return true;
    sched_yield();
  }
  return false;
}

void RequestServer::Impl::handle(ServerConnection::Arrived arrived) {
  const auto state = arrived.state;
  const auto end_handler = [&state](const std::exception* failure) {
    try {
      state->end_of_handler(failure);
    } catch (const std::exception&) {
      state->connection->close();  // Without memory for an answer.
    }
  };
  try {
    Responder responder(state);
    if (arrived.problem) std::rethrow_exception(arrived.problem);
    handler.handle(std::move(arrived.request), std::move(responder));
  } catch (const std::exception& error) {
    return end_handler(&error);
  } catch (...) {
    const std::runtime_error unknown("the server's handler threw something unknown");
    return end_handler(&unknown);
  }
  end_handler(nullptr);
}

RequestServer::RequestServer(const Endpoint& listen, std::string token, RequestHandler handler,
                             RequestServerOptions options)
    : impl_(std::make_unique<Impl>(listen, token, std::move(handler), std::move(options))) {}
RequestServer::~RequestServer() = default;
Endpoint RequestServer::endpoint() const { return impl_->door.endpoint(); }
int RequestServer::clients() const {
  std::lock_guard lock(impl_->mutex);
  return static_cast<int>(impl_->connections.size());
}

}  // namespace trireme::net
