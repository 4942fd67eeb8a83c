#include <fcntl.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/comm/tcp/mesh.h>
#include <trireme/net/handshake.h>
#include <trireme/net/sockets.h>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>
#include <bit>
#include <list>
#include <optional>

namespace trireme::comm {
namespace {

using asio::ip::tcp;

static_assert(std::endian::native == std::endian::little,
              "what ranks call is sent in the byte order of the host");

constexpr Milliseconds kPatience{5000};  // With a stranger.
constexpr size_t kMaxStrangers = 256;    // At once; one more drops the oldest.
constexpr Milliseconds kPause{20};  // Between calls that fail, and between looks at who was lost.

enum class Lane : uint32_t { collectives, messages };

// After the handshake, from who called.
struct Introduction {
  uint32_t rank = 0;
  Lane lane = Lane::collectives;
};

class Meeting {
 public:
  Meeting(launch::Member& member, int rank, int size, const MeshOptions& options)
      : member_(member),
        rank_(rank),
        size_(size),
        options_(options),
        deadline_(Deadline::after(options.timeout)),
        acceptor_(net::listen_on(context_, {options.address, 0})) {
    mesh_.collectives.resize(static_cast<size_t>(size));
    mesh_.messages.resize(static_cast<size_t>(size));
  }

  Mesh run() {
    const net::Endpoint here{options_.address, acceptor_.local_endpoint().port()};
    member_.set(key(rank_), here.describe());
    for (int peer = 0; peer < rank_; ++peer) {
      const auto addresses =
          net::resolve(net::parse_endpoint(member_.get(key(peer), deadline_)), deadline_);
      if (addresses.empty()) throw missing();
      for (const Lane lane : {Lane::collectives, Lane::messages})
        asio::co_spawn(context_, call(peer, lane, addresses.front()), asio::detached);
    }
    asio::co_spawn(context_, accept_all(), asio::detached);
    while (met_ < 2 * (size_ - 1)) {
      context_.run_one_for(kPause);
      member_.throw_if_lost();
      if (failure_) throw *failure_;
      if (deadline_.expired()) throw missing();
    }
    return std::move(mesh_);
  }

 private:
  struct Stranger {
    explicit Stranger(net::Accepted accepted)
        : socket(std::move(accepted.socket)),
          peer(std::move(accepted.peer)),
          patience(socket.get_executor()) {}
    tcp::socket socket;
    const std::string peer;
    asio::steady_timer patience;
  };

  std::string key(int rank) const { return fmt::format("tcp/{}/{}", options_.name, rank); }

  Error missing() const {
    std::string ranks;
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_ && !(mesh_.collectives[peer] && mesh_.messages[peer]))
        ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", peer);
    return Error(ErrorCode::timeout, "comm",
                 fmt::format("no connection with rank {} within {}{}", ranks,
                             format_duration(options_.timeout),
                             last_failure_.empty() ? "" : ": " + last_failure_),
                 "comm.interface: the name or address of the network interface that the other "
                 "hosts reach; no firewall between them");
  }

  asio::awaitable<void> call(int peer, Lane lane, tcp::endpoint address) {
    for (asio::steady_timer pause(context_);; co_await pause.async_wait(asio::use_awaitable)) {
      try {
        tcp::socket socket(context_);
        net::open_private(socket, address);
        co_await socket.async_connect(address, asio::use_awaitable);
        const net::HandshakeEnd end = co_await net::shake_hands_as_client(socket, options_.token);
        if (end == net::HandshakeEnd::accepted) {
          const Introduction mine{static_cast<uint32_t>(rank_), lane};
          co_await asio::async_write(socket, asio::buffer(&mine, sizeof mine), asio::use_awaitable);
          keep(std::move(socket), peer, lane);
          co_return;
        }
        if (end == net::HandshakeEnd::wrong_token) {
          failure_.emplace(ErrorCode::invalid_argument, "comm",
                           fmt::format("rank {} has another job token than rank {}", peer, rank_),
                           "the same TRIREME_JOB_TOKEN for all workers");
          co_return;
        }
        last_failure_ = "what listens there does not speak Trireme's protocol";
      } catch (const std::system_error& error) {
        last_failure_ = error.code().message();
      }
      pause.expires_after(kPause);
    }
  }

  asio::awaitable<void> accept_all() {
    for (;;) {
      co_await acceptor_.async_wait(tcp::acceptor::wait_read, asio::use_awaitable);
      try {
        net::Accepted accepted = net::accept_private(acceptor_);
        if (accepted.peer.empty()) continue;
        if (strangers_.size() == kMaxStrangers)
          dismiss(strangers_.front(), "too many connections without proof");
        strangers_.push_back(std::make_shared<Stranger>(std::move(accepted)));
        asio::co_spawn(context_, greet(strangers_.back()), asio::detached);
      } catch (const std::system_error& error) {  // Out of descriptors.
        failure_.emplace(ErrorCode::io, "comm",
                         fmt::format("cannot accept a connection on {}: {}", options_.address,
                                     error.code().message()),
                         "ulimit -n");
        co_return;
      }
    }
  }

  asio::awaitable<void> greet(std::shared_ptr<Stranger> stranger) {
    stranger->patience.expires_after(kPatience);
    stranger->patience.async_wait([this, stranger](std::error_code cancelled) {
      if (!cancelled)
        dismiss(stranger, "no proof of the job token within " + format_duration(kPatience));
    });
    std::string refusal;
    Introduction theirs;
    try {
      switch (co_await net::shake_hands_as_server(stranger->socket, options_.token)) {
        case net::HandshakeEnd::accepted:
          co_await asio::async_read(stranger->socket, asio::buffer(&theirs, sizeof theirs),
                                    asio::use_awaitable);
          break;
        case net::HandshakeEnd::wrong_magic:
          refusal = "its bytes are not Trireme's protocol";
          break;
        case net::HandshakeEnd::wrong_token:
          refusal = "its job token differs from this job's";
          break;
      }
    } catch (const std::system_error& error) {
      refusal = "it left before proving the job token (" + error.code().message() + ")";
    }
    stranger->patience.cancel();
    if (refusal.empty() && !is_expected(theirs))
      refusal = "it introduces itself as a rank that is not expected";
    if (refusal.empty()) {
      strangers_.remove(stranger);
      keep(std::move(stranger->socket), static_cast<int>(theirs.rank), theirs.lane);
    } else {
      dismiss(stranger, refusal);
    }
  }

  void dismiss(std::shared_ptr<Stranger> stranger, const std::string& why) {
    if (!stranger->socket.is_open()) return;  // It was told already.
    log_warning("comm: dropped a connection from {}: {}", stranger->peer, why);
    std::error_code ignored;
    stranger->socket.close(ignored);
    strangers_.remove(stranger);
  }

  bool is_expected(const Introduction& theirs) {
    const int rank = static_cast<int>(theirs.rank);
    return rank > rank_ && rank < size_ && theirs.lane <= Lane::messages &&
           !place(rank, theirs.lane);
  }

  Descriptor& place(int peer, Lane lane) {
    return (lane == Lane::collectives ? mesh_.collectives
                                      : mesh_.messages)[static_cast<size_t>(peer)];
  }

  // Buffers are left to the kernel, which grows them with the link's bandwidth and delay beyond
  // what a process may ask for.
  void keep(tcp::socket socket, int peer, Lane lane) {
    net::tune(socket, options_.silence);
    const int descriptor = socket.release();
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
    place(peer, lane) = Descriptor(descriptor);
    ++met_;
  }

  launch::Member& member_;
  const int rank_, size_;
  const MeshOptions& options_;
  const Deadline deadline_;
  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  std::list<std::shared_ptr<Stranger>> strangers_;  // Oldest first.
  Mesh mesh_;
  int met_ = 0;
  std::optional<Error> failure_;
  std::string last_failure_;
};

}  // namespace

Mesh connect_mesh(launch::Member& member, int rank, int size, const MeshOptions& options) {
  if (size == 1) return {std::vector<Descriptor>(1), std::vector<Descriptor>(1)};
  return Meeting(member, rank, size, options).run();
}

}  // namespace trireme::comm
