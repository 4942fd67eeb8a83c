#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/host_name.h>
#include <trireme/base/units.h>
#include <trireme/membership/arrival.h>
#include <trireme/membership/protocol.h>
#include <unistd.h>
#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme::membership {
namespace {

constexpr Milliseconds kCandidateTimeout{1000};
constexpr Milliseconds kPause{20};
constexpr Milliseconds kLookMeanwhile{100};

}  // namespace

struct Arrival::Impl {
  net::Endpoint coordinator;
  std::mutex mutex;  // Guards the members below.
  std::condition_variable changed;
  std::optional<Json> noted, placed;
  std::optional<std::string> closed;
  std::unique_ptr<net::ControlClient> client;  // The last: its thread uses all of the above.

  net::ClientEvents events() {
    return {.received =
                [this](Json message) {
                  const std::lock_guard lock(mutex);
                  (message.at("op") == "noted" ? noted : placed) = std::move(message);
                  changed.notify_all();
                },
            .closed =
                [this](const std::string& why) {
                  const std::lock_guard lock(mutex);
                  closed = why;
                  changed.notify_all();
                }};
  }

  // Returns false if `who` did not answer, or has ended.
  bool talks_to(const net::Endpoint& who, const std::string& token, Deadline deadline) {
    try {
      client = std::make_unique<net::ControlClient>(
          who, token, events(), Deadline::after(std::min(kCandidateTimeout, deadline.remaining())),
          net::ControlOptions{.purpose = net::Purpose::arrival});
      coordinator = who;
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timeout) throw;
      return false;
    }
  }

  // Connects a process of `former`. Returns true if it talks to a coordinator.
  bool finds_one(const Former& former, const std::string& token, Deadline deadline,
                 CoordinatorLookup* lookup) {
    const auto look = [&token, wait = std::min(kCandidateTimeout, deadline.remaining())](
                          const net::Endpoint& who) {
      return net::reach(who, token, Deadline::after(wait));
    };
    const auto named = lookup ? lookup->now() : std::nullopt;
    if (named && look(*named) == net::Reach::listens) return talks_to(*named, token, deadline);
    const bool was_asked = named && named->describe() == coordinator.describe();
    const net::Reach reached = was_asked ? net::Reach::silent : look(coordinator);
    if (reached == net::Reach::listens) return talks_to(coordinator, token, deadline);
    const bool is_gone = net::is_gone(reached);
    if (is_gone && !former.may_be_taken_over()) throw no_take_over("is gone");
    // Without etcd no other process may coordinate as long as the coordinator may live.
    if (!lookup && !is_gone) return false;
    // Without etcd all processes must go to the same one: the oldest process that is not gone. A
    // member that has not heard of the newest generation finds it too.
    std::vector<Former::Place> candidates = former.members;
    if (!lookup) std::ranges::sort(candidates, {}, &Former::Place::process);
    // All are asked at once: the processes of a lost host then cost only one time-out.
    std::vector<std::future<net::Reach>> answers;
    for (const auto& [process, standby] : candidates)
      answers.push_back(std::async(std::launch::async, look, standby));
    for (size_t i = 0; i < answers.size(); ++i) {
      const net::Reach answer = answers[i].get();
      if (answer == net::Reach::listens) return talks_to(candidates[i].standby, token, deadline);
      if (!lookup && !net::is_gone(answer)) return false;
    }
    return false;
  }

  void connect(const Former& former, const std::string& token, Deadline deadline,
               CoordinatorLookup* lookup) {
    for (; !deadline.expired(); std::this_thread::sleep_for(kPause))
      if (finds_one(former, token, deadline, lookup)) return;
    const std::string patience = format_duration(deadline.allowed());
    if (!former.may_be_taken_over()) throw no_take_over("did not answer within " + patience);
    throw NoGeneration(ErrorCode::timeout, "membership",
                       fmt::format("neither the coordinator at {} nor one of {} processes that "
                                   "stand by for it answered within {}",
                                   coordinator.describe(), former.members.size(), patience),
                       "run the job again; it continues from its last checkpoint");
  }

  void connect_as_newcomer(const std::string& token, Deadline deadline,
                           CoordinatorLookup* lookup) {
    try {
      // The address in etcd may be that of a coordinator that ends before it is reached.
      while (lookup)
        if (talks_to(lookup->wait(token, deadline), token, deadline)) return;
      client = std::make_unique<net::ControlClient>(
          coordinator, token, events(), deadline,
          net::ControlOptions{.purpose = net::Purpose::arrival});
    } catch (const Error& error) {
      if (error.code() == ErrorCode::timeout) throw NoGeneration(error);
      throw;
    }
  }

  void throw_if_turned_away() {
    const std::lock_guard lock(mutex);
    // wait() says that no generation can form: that is no reason to turn this process away.
    if (!placed || placed->at("op") == "failed") return;
    if (const auto refused = failure_in(*placed)) throw refused->error();
  }

  NoGeneration no_take_over(const std::string& why) const {
    return {ErrorCode::peer_lost, "membership",
            fmt::format("the coordinator at {} {}, and no other may take over in a job on several "
                        "nodes without etcd",
                        coordinator.describe(), why),
            "run the job again, and it continues from its last checkpoint; a job of `trireme "
            "launch` or `trireme train` with --rendezvous etcd://HOST:PORT/NAME continues without "
            "that host"};
  }

  template <typename Ready>
  void wait_for(Ready ready, const char* what, Deadline deadline,
                const std::function<void()>& look = {}) {
    std::unique_lock lock(mutex);
    const auto is_over = [&] { return ready() || closed; };
    while (look && !deadline.expired() && !changed.wait_for(lock, kLookMeanwhile, is_over)) {
      lock.unlock();
      look();
      lock.lock();
    }
    if (!changed.wait_until(lock, deadline.at(), is_over))
      throw Error(ErrorCode::timeout, "membership",
                  fmt::format("{}: the coordinator at {} did not answer within {}", what,
                              coordinator.describe(), format_duration(deadline.allowed())),
                  "check whether enough workers are left to continue");
    if (ready()) return;
    lock.unlock();
    throw_if_closed(what);
  }

  void throw_if_closed(const char* what) {
    const std::lock_guard lock(mutex);
    if (closed)
      throw Error(ErrorCode::peer_lost, "membership",
                  fmt::format("{}: the coordinator at {} is lost: {}", what,
                              coordinator.describe(), *closed),
                  "run the job again; it continues from its last checkpoint");
  }
};

Arrival::Arrival(const net::Endpoint& coordinator, const std::string& token, const Newcomer& who,
                 const std::optional<Former>& former, Deadline deadline, CoordinatorLookup* lookup)
    : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.coordinator = coordinator;
  if (former) {
    impl.connect(*former, token, deadline, lookup);
  } else {
    impl.connect_as_newcomer(token, deadline, lookup);
  }
  Json message{{"op", "arrive"},
               {"generation", -1},
               {"process", who.process},
               {"step", who.step},
               {"reason", who.reason},
               {"standby", who.standby(impl.client->local_address()).describe()},
               {"facts", who.facts},
               {"host", own_host_name()},
               {"pid", static_cast<int>(::getpid())}};
  if (former) message["former"] = former->to_json();
  impl.client->send(std::move(message));
  impl.wait_for([&] { return impl.noted || impl.placed; }, "arriving for the next generation",
                deadline);
  impl.throw_if_turned_away();
}

Arrival::~Arrival() = default;

const net::Endpoint& Arrival::coordinator() const { return impl_->coordinator; }

void Arrival::throw_if_closed() const { impl_->throw_if_closed("joining the next generation"); }

std::optional<Arrival::Place> Arrival::wait(Deadline deadline, const std::function<void()>& look) {
  impl_->wait_for([this] { return impl_->placed.has_value(); }, "waiting for the next generation",
                  deadline, look);
  impl_->throw_if_turned_away();
  const Json& message = *impl_->placed;
  const std::string op = message.at("op").get<std::string>();
  if (op == "dismissed") return std::nullopt;
  if (op == "failed") throw NoGeneration(failure_in(message)->error());
  return Place{message.at("number"),
               message.at("worker"),
               message.at("workers"),
               message.at("step"),
               message.at("cause"),
               message.value("steps", std::vector<int64_t>{}),
               Former::from_json(message.at("former"))};
}

}  // namespace trireme::membership
