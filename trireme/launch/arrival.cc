#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/launch/arrival.h>
#include <trireme/launch/protocol.h>
#include <unistd.h>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme::launch {
namespace {

constexpr Milliseconds kCandidateTimeout{1000};
constexpr Milliseconds kPause{20};

}  // namespace

struct Arrival::Impl {
  net::Endpoint coordinator;
  std::mutex mutex;  // Guards what follows.
  std::condition_variable changed;
  std::optional<Json> noted, placed;
  std::optional<std::string> closed;
  std::unique_ptr<net::ControlClient> client;  // Last: its thread uses all of the above.

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

  void talk_to(const net::Endpoint& who, const std::string& token, Deadline deadline) {
    coordinator = who;
    client = std::make_unique<net::ControlClient>(
        who, token, events(), deadline, net::ControlOptions{.purpose = net::Purpose::arrival});
  }

  // Whom etcd names, or the first of them that answers.
  void connect(const std::vector<net::Endpoint>& candidates, const std::string& token,
               Deadline deadline, CoordinatorLookup* lookup) {
    for (; !deadline.expired(); std::this_thread::sleep_for(kPause)) {
      const auto listens = [&token, wait = std::min(kCandidateTimeout, deadline.remaining())](
                               const net::Endpoint& who) {
        return net::reach(who, token, Deadline::after(wait)) == net::Reach::listens;
      };
      const auto named = lookup ? lookup->now() : std::nullopt;
      if (named && listens(*named)) return talk_to(*named, token, deadline);
      const bool was_asked = named && named->describe() == candidates[0].describe();
      if (!was_asked && listens(candidates[0])) return talk_to(candidates[0], token, deadline);
      std::vector<std::future<bool>>
          answers;  // Asked at once: those of a host that is gone cost one time-out together.
      for (const net::Endpoint& candidate : candidates)
        answers.push_back(std::async(std::launch::async, listens, candidate));
      for (size_t i = 0; i < candidates.size(); ++i)
        if (answers[i].get()) return talk_to(candidates[i], token, deadline);
    }
    throw Error(ErrorCode::timeout, "launch",
                fmt::format("neither the coordinator at {} nor one of {} processes that stand by "
                            "for it answered within {}",
                            coordinator.describe(), candidates.size() - 1,
                            format_duration(deadline.allowed())),
                "run the job again; it goes on from its last checkpoint");
  }

  // Whom etcd names may end before it is reached.
  void connect_as_newcomer(const std::string& token, Deadline deadline, CoordinatorLookup& lookup) {
    for (;;) {
      const net::Endpoint named = lookup.wait(token, deadline);
      try {
        return talk_to(named, token,
                       Deadline::after(std::min(kCandidateTimeout, deadline.remaining())));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::timeout || deadline.expired()) throw;
      }
    }
  }

  void throw_if_turned_away() {
    const std::lock_guard lock(mutex);
    if (!placed) return;
    if (const auto refused = failure_in(*placed)) throw refused->error();
  }

  template <typename Ready>
  void wait_for(Ready ready, const char* what, Deadline deadline) {
    std::unique_lock lock(mutex);
    if (!changed.wait_until(lock, deadline.at(), [&] { return ready() || closed; }))
      throw Error(ErrorCode::timeout, "launch",
                  fmt::format("{}: the coordinator at {} did not answer within {}", what,
                              coordinator.describe(), format_duration(deadline.allowed())),
                  "look whether enough workers are left to go on");
    if (!ready())
      throw Error(ErrorCode::peer_lost, "launch",
                  fmt::format("{}: the coordinator at {} is lost: {}", what, coordinator.describe(),
                              *closed),
                  "run the job again; it goes on from its last checkpoint");
  }
};

Arrival::Arrival(const net::Endpoint& coordinator, const std::string& token, const Newcomer& who,
                 const std::optional<Former>& former, Deadline deadline, CoordinatorLookup* lookup)
    : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.coordinator = coordinator;
  if (former) {
    std::vector<net::Endpoint> candidates{coordinator};
    for (const auto& [process, standby] : former->members) candidates.push_back(standby);
    impl.connect(candidates, token, deadline, lookup);
  } else if (lookup) {
    impl.connect_as_newcomer(token, deadline, *lookup);
  } else {
    impl.talk_to(coordinator, token, deadline);
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

std::optional<Arrival::Place> Arrival::wait(Deadline deadline) {
  impl_->wait_for([this] { return impl_->placed.has_value(); }, "waiting for the next generation",
                  deadline);
  impl_->throw_if_turned_away();
  const Json& message = *impl_->placed;
  const std::string op = message.at("op").get<std::string>();
  if (op == "dismissed") return std::nullopt;
  if (op == "failed")
    throw NoGeneration(ErrorCode::peer_lost, "launch",
                       fmt::format("no next generation: {}", message.at("what").get<std::string>()),
                       "run the job again; it goes on from its last checkpoint");
  return Place{message.at("number"), message.at("worker"), message.at("workers"),
               message.at("step"),   message.at("cause"),  Former::from_json(message.at("former"))};
}

}  // namespace trireme::launch
