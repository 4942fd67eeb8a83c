#include <fcntl.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/comm/tcp/mesh.h>
#include <trireme/net/doorkeeper.h>
#include <trireme/net/sockets.h>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <bit>
#include <map>
#include <optional>

namespace trireme::comm {
namespace {

using asio::ip::tcp;

static_assert(std::endian::native == std::endian::little,
              "what ranks call is sent in the byte order of the host");

constexpr Milliseconds kPatience{5000};  // The time that a stranger has.
// The pause between failed calls, and between checks for lost workers.
constexpr Milliseconds kPause{20};

enum class Lane { collectives, messages };

class Meeting {
 public:
  Meeting(membership::Member& member, int rank, int size, const MeshOptions& options)
      : member_(member),
        rank_(rank),
        size_(size),
        options_(options),
        deadline_(Deadline::after(options.timeout)),
        door_(context_, {options.address, 0},
              {.terms = {.token = options.token,
                         .expects =
                             [this](net::Purpose purpose, const net::Subject& subject) {
                               return purpose == net::Purpose::mesh && caller_of(subject);
                             }},
               .patience = kPatience,
               .room = "comm"},
              [this](net::Doorkeeper::Guest guest) { welcome(std::move(guest)); }) {
    mesh_.collectives.resize(static_cast<size_t>(size));
    mesh_.messages.resize(static_cast<size_t>(size));
    for (const Lane lane : {Lane::collectives, Lane::messages})
      for (int peer = rank_ + 1; peer < size_; ++peer)
        callers_[subject(peer, rank_, lane)] = {peer, lane};
  }

  Mesh run() {
    member_.set(key(rank_), door_.endpoint().describe());
    for (int peer = 0; peer < rank_; ++peer) {
      const auto addresses =
          net::resolve(net::parse_endpoint(member_.get(key(peer), deadline_)), deadline_);
      if (addresses.empty()) throw missing();
      for (const Lane lane : {Lane::collectives, Lane::messages})
        asio::co_spawn(context_, call(peer, lane, addresses.front()), asio::detached);
    }
    while (met_ < 2 * (size_ - 1)) {
      context_.run_one_for(kPause);
      member_.throw_if_lost();
      if (failure_) throw *failure_;
      if (deadline_.expired()) throw missing();
    }
    return std::move(mesh_);
  }

 private:
  struct Caller {
    int rank = 0;
    Lane lane = Lane::collectives;
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

  // The identity of a link, which both of its ends prove. No other link's proof serves for it.
  net::Subject subject(int caller, int called, Lane lane) const {
    return net::subject_of(fmt::format("{} of generation {}, {} to {}, {}", options_.name,
                                       member_.generation(), caller, called,
                                       lane == Lane::collectives ? "collectives" : "messages"));
  }

  asio::awaitable<void> call(int peer, Lane lane, tcp::endpoint address) {
    for (asio::steady_timer pause(context_);; co_await pause.async_wait(asio::use_awaitable)) {
      try {
        tcp::socket socket(context_);
        net::open_private(socket, address);
        co_await socket.async_connect(address, asio::use_awaitable);
        net::SessionKeys keys;  // Tensors are not signed.
        const net::HandshakeEnd end = co_await net::shake_hands_as_client(
            socket, options_.token, net::Purpose::mesh, subject(rank_, peer, lane), keys);
        if (end == net::HandshakeEnd::accepted) {
          keep(std::move(socket), peer, lane);
          co_return;
        }
        if (end == net::HandshakeEnd::wrong_token) {
          // The job knows its members, so this one has ended, and its port is in use again.
          failure_.emplace(ErrorCode::peer_lost, "comm",
                           fmt::format("the process at the address of rank {} has another job "
                                       "token than rank {}",
                                       peer, rank_),
                           "the same TRIREME_JOB_TOKEN for all workers");
          co_return;
        }
        last_failure_ = net::describe_for_client(end);
      } catch (const std::system_error& error) {
        last_failure_ = error.code().message();
      }
      pause.expires_after(kPause);
    }
  }

  // The rank that calls under this subject, if it is expected and has not come yet.
  std::optional<Caller> caller_of(const net::Subject& subject) {
    const auto found = callers_.find(subject);
    if (found == callers_.end() || place(found->second.rank, found->second.lane))
      return std::nullopt;
    return found->second;
  }

  void welcome(net::Doorkeeper::Guest guest) {
    if (const auto caller = caller_of(guest.hello.subject))
      keep(std::move(guest.socket), caller->rank, caller->lane);
  }

  Descriptor& place(int peer, Lane lane) {
    return (lane == Lane::collectives ? mesh_.collectives
                                      : mesh_.messages)[static_cast<size_t>(peer)];
  }

  // The kernel chooses the sizes of the buffers: it lets them grow with the link's bandwidth and
  // delay, beyond the limit for a process.
  void keep(tcp::socket socket, int peer, Lane lane) {
    net::tune(socket, options_.silence);
    const int descriptor = socket.release();
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
    place(peer, lane) = Descriptor(descriptor);
    ++met_;
  }

  membership::Member& member_;
  const int rank_, size_;
  const MeshOptions& options_;
  const Deadline deadline_;
  asio::io_context context_{1};
  Mesh mesh_;
  std::map<net::Subject, Caller> callers_;  // The ranks that this rank waits for.
  int met_ = 0;
  std::optional<Error> failure_;
  std::string last_failure_;
  net::Doorkeeper door_;  // The last member: its callbacks use all of the above.
};

}  // namespace

Mesh connect_mesh(membership::Member& member, int rank, int size, const MeshOptions& options) {
  if (size == 1) return {std::vector<Descriptor>(1), std::vector<Descriptor>(1)};
  return Meeting(member, rank, size, options).run();
}

}  // namespace trireme::comm
