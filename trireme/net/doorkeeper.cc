#include <trireme/net/doorkeeper.h>

#include <fmt/format.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <algorithm>
#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>

namespace trireme::net {
namespace {

using asio::ip::tcp;

// The pause when no descriptors are left, in which other connections may close.
constexpr Milliseconds kPauseWhenFull{100};
constexpr Milliseconds kTick{500};
// An address with so many failures in a period may have only kFloodStrangers strangers at a time.
constexpr int kFloodFailures = 200;
constexpr size_t kFloodStrangers = 8;

void fail_loudly(std::exception_ptr error) {
  if (error) std::rethrow_exception(error);
}

std::string refusal_for(HandshakeEnd end) {
  switch (end) {
    case HandshakeEnd::accepted: return {};
    case HandshakeEnd::wrong_magic: return "its bytes are not Trireme's protocol";
    case HandshakeEnd::wrong_token: return "its job token differs from this job's";
    case HandshakeEnd::wrong_address:
      return "a process of this job called another address, and a relay forwarded the connection";
    case HandshakeEnd::wrong_purpose: return "a connection of this purpose is not expected here";
  }
  return {};
}

// The unit that counts as one address. A host can have all addresses of an IPv6 network of 64
// bits.
std::string host_of(const std::string& peer) {
  const std::string host = parse_endpoint(peer).host;
  std::error_code not_v6;
  const auto v6 = asio::ip::make_address_v6(host, not_v6);
  if (not_v6 || v6.is_v4_mapped() || v6.is_loopback()) return host;
  auto bytes = v6.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), uint8_t{0});
  return asio::ip::make_address_v6(bytes).to_string() + "/64";
}

}  // namespace

// A connection that has not proven the token: a socket and a few members of fixed size.
struct Doorkeeper::Stranger {
  explicit Stranger(Accepted accepted)
      : socket(std::move(accepted.socket)),
        peer(std::move(accepted.peer)),
        address(host_of(peer)),
        patience(socket.get_executor()) {}

  void drop(std::string reason) {
    if (dropped_because.empty()) dropped_because = std::move(reason);
    std::error_code ignored;
    socket.close(ignored);
  }

  tcp::socket socket;
  const std::string peer, address;
  asio::steady_timer patience;
  bool has_seal = false;
  std::string dropped_because;
};

Doorkeeper::Doorkeeper(asio::io_context& context, const Endpoint& listen, DoorOptions options,
                       std::function<void(Guest)> admit)
    : context_(context),
      acceptor_(listen_on(context, listen)),
      bound_{listen.host, acceptor_.local_endpoint().port()},
      options_(std::move(options)),
      admit_(std::move(admit)),
      complaints_([this](const std::string& line) {
        log_warning("{}: on {}: {}", options_.room, bound_.describe(), line);
      }) {
  asio::co_spawn(context_, accept_all(), fail_loudly);
  asio::co_spawn(context_, tick(), fail_loudly);
}

Doorkeeper::~Doorkeeper() = default;

asio::awaitable<void> Doorkeeper::accept_all() {
  asio::steady_timer pause(context_);
  for (;;) {
    co_await acceptor_.async_wait(tcp::acceptor::wait_read, asio::use_awaitable);
    std::string full;
    try {
      Accepted accepted = accept_private(acceptor_);
      if (!accepted.peer.empty()) greet(std::move(accepted));
    } catch (const std::system_error& error) {
      full = error.code().message();
    }
    if (full.empty()) continue;
    complaints_.add("this process",
                    fmt::format("cannot accept a connection: {}; try: ulimit -n", full),
                    Complaints::Clock::now());
    pause.expires_after(kPauseWhenFull);
    co_await pause.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<void> Doorkeeper::tick() {
  asio::steady_timer timer(context_);
  for (;;) {
    timer.expires_after(kTick);
    co_await timer.async_wait(asio::use_awaitable);
    complaints_.tick(Complaints::Clock::now());
  }
}

void Doorkeeper::greet(Accepted accepted) {
  const auto stranger = std::make_shared<Stranger>(std::move(accepted));
  make_room(stranger->address);
  strangers_[stranger->address].push_back(stranger);
  ++count_;
  stranger->patience.expires_after(options_.patience);
  stranger->patience.async_wait([this, stranger](std::error_code cancelled) {
    if (!cancelled)
      stranger->drop("no proof of the job token within " + format_duration(options_.patience));
  });
  asio::co_spawn(context_, serve(stranger), fail_loudly);
}

void Doorkeeper::make_room(const std::string& address) {
  const auto of_address = strangers_.find(address);
  const size_t allowed =
      complaints_.failures(address) > kFloodFailures ? kFloodStrangers : options_.max_per_address;
  if (of_address != strangers_.end() && of_address->second.size() >= allowed)
    return drop_oldest_of(
        address, fmt::format("more than {} connections without proof from one address", allowed));
  if (count_ < options_.max_strangers) return;
  const auto most = std::max_element(
      strangers_.begin(), strangers_.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  drop_oldest_of(most->first,
                 fmt::format("more than {} connections without proof", options_.max_strangers));
}

void Doorkeeper::drop_oldest_of(const std::string& address, const std::string& reason) {
  const StrangerPtr oldest = strangers_.at(address).front();
  oldest->drop(reason);
  forget(oldest);
}

// From now on strangers cannot displace the connection.
void Doorkeeper::note_seal(const StrangerPtr& stranger) {
  forget(stranger);
  if (sealed_.size() >= options_.max_sealed) {
    sealed_.front()->drop(fmt::format("more than {} processes of the job prove the token at once",
                                      options_.max_sealed));
    sealed_.pop_front();
  }
  stranger->has_seal = true;
  sealed_.push_back(stranger);
}

void Doorkeeper::forget(const StrangerPtr& stranger) {
  if (stranger->has_seal) {
    sealed_.remove(stranger);
    return;
  }
  const auto of_address = strangers_.find(stranger->address);
  if (of_address == strangers_.end()) return;
  count_ -= of_address->second.remove(stranger);
  if (of_address->second.empty()) strangers_.erase(of_address);
}

// Returns an empty text if the stranger has proven the token, otherwise the reason. The caller
// owns the stranger: GCC 12 destroys a temporary in a co_await expression twice, also the copy
// that a parameter by value needs, and would release the stranger once too often. The closure has
// a name and captures no owner for the same reason.
asio::awaitable<std::string> Doorkeeper::examine(const StrangerPtr& stranger, Greeted& greeted) {
  std::string refusal;
  const std::function<void()> sealed = [this, &stranger] { note_seal(stranger); };
  try {
    greeted = co_await shake_hands_as_server(stranger->socket, options_.terms, sealed);
    refusal = refusal_for(greeted.end);
  } catch (const std::system_error& error) {
    refusal = "it left before proving the job token (" + error.code().message() + ")";
  }
  stranger->patience.cancel();
  forget(stranger);
  co_return stranger->dropped_because.empty() ? refusal : stranger->dropped_because;
}

asio::awaitable<void> Doorkeeper::serve(StrangerPtr stranger) {
  Greeted greeted;
  if (const std::string refusal = co_await examine(stranger, greeted); !refusal.empty()) {
    complaints_.add(stranger->address, fmt::format("dropped {}: {}", stranger->peer, refusal),
                    Complaints::Clock::now());
    co_return;
  }
  admit_({std::move(stranger->socket), stranger->peer, greeted.hello, greeted.keys});
}

}  // namespace trireme::net
