#include <fmt/format.h>
#include <poll.h>
#include <trireme/base/error.h>
#include <trireme/comm/tcp/round_runner.h>
#include <algorithm>
#include <system_error>

namespace trireme::comm {
namespace {

using Clock = Deadline::Clock;

constexpr auto kSpin = std::chrono::microseconds(50);
// The number of waits in vain after which the runner stops spinning. On a slow link the wake-up
// time does not matter, and other computing threads need the core.
constexpr int kMostInVain = 3;
// The interval at which a sleeping wait checks for lost workers from which it expects no bytes.
constexpr Milliseconds kSlice{20};
// The time in which this rank's call may still reach the others before the operation fails here.
constexpr Milliseconds kLastWords{1000};

}  // namespace

RoundRunner::RoundRunner(std::vector<Link>& links, int rank, const WaitLimits& limits, bool spin,
                         const Call& call)
    : links_(links),
      rank_(rank),
      limits_(limits),
      spin_(spin),
      call_(call),
      deadline_(Deadline::after(limits.timeout())) {
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

RoundRunner::~RoundRunner() {
  for (Link& link : links_) link.forget();
}

void RoundRunner::run(Round& round) {
  round.queue(links_);
  advance_until([&] { return round.finished(); }, &round);
}

void RoundRunner::finish() {
  advance_until([&] { return uncompared_ == 0 && others_are_done(); }, nullptr);
}

bool RoundRunner::others_are_done() const {
  return std::none_of(links_.begin(), links_.end(), [](const Link& link) { return link.owes(); });
}

void RoundRunner::advance_until(const std::function<bool()>& done, Round* round) {
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

bool RoundRunner::step(Round* round) {
  bool any = false;
  for (int peer = 0; peer < static_cast<int>(links_.size()); ++peer) any = move_bytes(peer) || any;
  if (any && uncompared_ > 0) compare_calls();
  if (round) any = round->advance_folds() || any;
  return any;
}

bool RoundRunner::move_bytes(int peer) {
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
    limits_.explain(to_string(call_.operation),
                    closed ? fmt::format("{} closed its connection", limits_.name_of(peer))
                           : fmt::format("the connection to {} broke ({})", limits_.name_of(peer),
                                         error.code().message()));
  }
  return any;
}

void RoundRunner::compare_calls() {
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    Peer& state = peers_[static_cast<size_t>(peer)];
    if (state.compared || !state.incoming.finished()) continue;
    if (state.call != call_) disagree(peer);
    state.compared = true;
    --uncompared_;
  }
}

// Throws the error, but first sends this rank's call to the others: it tells them
// of the difference.
void RoundRunner::disagree(int peer) {
  for (const Deadline until = Deadline::after(std::min(kLastWords, limits_.timeout()));
       !until.expired();) {
    bool waiting = false;
    for (size_t other = 0; other < peers_.size(); ++other) {
      if (peers_[other].outgoing.finished()) continue;
      try {
        links_[other].write_some();
      } catch (const std::system_error&) {
        // The connection to it is gone.
        peers_[other].outgoing.sent = peers_[other].outgoing.bytes;
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

void RoundRunner::wait_for_sockets() {
  limits_.throw_if_lost();
  if (deadline_.expired()) limits_.time_out(to_string(call_.operation), missing());
  std::vector<pollfd> waits(links_.size());
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    const short events = links_[peer].events();
    // A call must be seen at once; the number of bytes that follow is known only then.
    if (events & POLLIN) links_[peer].be_patient(peers_[peer].compared);
    // A connection with nothing in progress is left out: its peer may have finished and closed it.
    waits[peer] = {events ? links_[peer].descriptor() : -1, events, 0};
  }
  const auto longest = std::min(kSlice, deadline_.remaining());
  const bool in_vain = ::poll(waits.data(), waits.size(), static_cast<int>(longest.count())) == 0;
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    const short happened = waits[peer].revents;
    // Some bytes may be there even after a wait in vain.
    if (in_vain || (happened & (POLLIN | POLLHUP | POLLERR))) peers_[peer].readable = true;
    if (happened & (POLLOUT | POLLHUP | POLLERR)) peers_[peer].writable = true;
  }
}

std::string RoundRunner::missing() const {
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
  return silent.empty() ? fmt::format("rank {} to continue", slow)
                        : fmt::format("rank {} to arrive", silent);
}

}  // namespace trireme::comm
