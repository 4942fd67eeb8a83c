#include <fmt/format.h>
#include <poll.h>
#include <trireme/base/error.h>
#include <trireme/comm/tcp/exchange.h>
#include <algorithm>
#include <system_error>

namespace trireme::comm {
namespace {

using Clock = Deadline::Clock;

constexpr auto kSpin = std::chrono::microseconds(50);
constexpr int kMostInVain = 3;  // On a slow link it is not the wait for the wake-up that counts,
                                // and whoever computes needs the core.
// How often a sleeping wait looks whether a worker was lost that it has no bytes to expect from.
constexpr Milliseconds kSlice{20};
// For what ranks call to reach them before the operation fails here.
constexpr Milliseconds kLastWords{1000};

}  // namespace

Exchange::Exchange(std::vector<Link>& links, int rank, const Losses& losses, bool spin,
                   const Call& call)
    : links_(links),
      rank_(rank),
      losses_(losses),
      spin_(spin),
      call_(call),
      deadline_(Deadline::after(losses.timeout())) {
  peers_.reserve(links.size());
  for (size_t peer = 0; peer < links.size(); ++peer) {
    const bool self = static_cast<int>(peer) == rank;
    Peer& one = peers_.emplace_back(Peer{{}, Incoming(nullptr, 0), {}, self});
    if (self) continue;
    one.incoming = Incoming(reinterpret_cast<std::byte*>(&one.call), sizeof one.call);
    one.outgoing = {reinterpret_cast<const std::byte*>(&call_), sizeof call_};
    links_[peer].send(one.outgoing);
    links_[peer].receive(one.incoming);
    ++uncompared_;
  }
}

Exchange::~Exchange() {
  for (Link& link : links_) link.forget();
}

void Exchange::run(Round& round) {
  round.queue(links_);
  advance_until([&] { return round.finished(); }, &round);
}

void Exchange::finish() {
  advance_until([&] { return uncompared_ == 0 && others_are_done(); }, nullptr);
}

bool Exchange::others_are_done() const {
  return std::none_of(links_.begin(), links_.end(), [](const Link& link) { return link.owes(); });
}

void Exchange::advance_until(const std::function<bool()>& done, Round* round) {
  Clock::time_point idle_until{};
  bool spinning = false;
  for (;;) {
    const bool moved = step(round);
    if (done()) return;
    if (moved) {
      spinning = false;
      continue;
    }
    if (spin_) {
      const auto now = Clock::now();
      if (!spinning) idle_until = now + kSpin;
      spin_ = !spinning || now < idle_until || ++spins_in_vain_ < kMostInVain;
      spinning = now < idle_until;
    }
    if (spinning)
      for (Peer& peer : peers_) peer.readable = true;
    else
      wait_for_sockets();
  }
}

bool Exchange::step(Round* round) {
  bool any = false;
  for (int peer = 0; peer < static_cast<int>(links_.size()); ++peer) any = move_bytes(peer) || any;
  if (any && uncompared_ > 0) compare_calls();
  if (round) any = round->advance_folds() || any;
  return any;
}

bool Exchange::move_bytes(int peer) {
  Link& link = links_[static_cast<size_t>(peer)];
  Peer& state = peers_[static_cast<size_t>(peer)];
  bool any = false;
  try {
    const short events = link.events();
    if (state.writable && (events & POLLOUT)) any = state.writable = link.write_some();
    if (state.readable && (events & POLLIN)) {
      state.readable = link.read_some();
      any = any || state.readable;
    }
  } catch (const std::system_error& error) {
    const bool closed = error.code().value() == ECONNRESET || error.code().value() == EPIPE;
    losses_.explain(to_string(call_.operation),
                    closed ? fmt::format("{} closed its connection", losses_.name_of(peer))
                           : fmt::format("the connection to {} broke ({})", losses_.name_of(peer),
                                         error.code().message()));
  }
  return any;
}

void Exchange::compare_calls() {
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    Peer& state = peers_[static_cast<size_t>(peer)];
    if (state.compared || !state.incoming.finished()) continue;
    if (state.call != call_) disagree(peer);
    state.compared = true;
    --uncompared_;
  }
}

// The others must hear of it too: they learn it from what this rank calls.
void Exchange::disagree(int peer) {
  for (const Deadline until = Deadline::after(std::min(kLastWords, losses_.timeout()));
       !until.expired();) {
    bool waiting = false;
    for (size_t other = 0; other < peers_.size(); ++other) {
      if (peers_[other].outgoing.finished()) continue;
      try {
        links_[other].write_some();
      } catch (const std::system_error&) {
        peers_[other].outgoing.sent = peers_[other].outgoing.bytes;  // Nobody hears it there.
      }
      waiting = waiting || !peers_[other].outgoing.finished();
    }
    if (!waiting) break;
    ::poll(nullptr, 0, 1);
  }
  throw Error(
      ErrorCode::invalid_argument, "comm",
      fmt::format("rank {} calls {}, rank {} calls {}", peer,
                  peers_[static_cast<size_t>(peer)].call.describe(), rank_, call_.describe()),
      "the same collectives in the same order on every rank");
}

void Exchange::wait_for_sockets() {
  losses_.throw_if_lost();
  if (deadline_.expired()) losses_.time_out(to_string(call_.operation), missing());
  std::vector<pollfd> waits(links_.size());
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    const short events = links_[peer].events();
    // What others call is to be known at once, and how large the rest is only then.
    if (events & POLLIN) links_[peer].be_patient(peers_[peer].compared);
    // A connection with nothing under way is left out: its peer may be through and gone.
    waits[peer] = {events ? links_[peer].descriptor() : -1, events, 0};
  }
  const auto longest = std::min(kSlice, deadline_.remaining() + Milliseconds(1));
  const bool in_vain = ::poll(waits.data(), waits.size(), static_cast<int>(longest.count())) == 0;
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    const short happened = waits[peer].revents;
    // After a wait in vain some bytes may be there all the same.
    if (in_vain || (happened & (POLLIN | POLLHUP | POLLERR))) peers_[peer].readable = true;
    if (happened & (POLLOUT | POLLHUP | POLLERR)) peers_[peer].writable = true;
  }
}

std::string Exchange::missing() const {
  std::string silent, slow;
  const auto add = [](std::string& list, size_t peer) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", peer);
  };
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (static_cast<int>(peer) == rank_) continue;
    if (!peers_[peer].incoming.finished())
      add(silent, peer);
    else if (links_[peer].expects() || links_[peer].owes())
      add(slow, peer);
  }
  return silent.empty() ? fmt::format("rank {} to go on", slow)
                        : fmt::format("rank {} to arrive", silent);
}

}  // namespace trireme::comm
