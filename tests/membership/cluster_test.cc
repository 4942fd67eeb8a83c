// A cluster of threads that pretend to train. Each thread plays a process of an elastic job with a
// coordinator that stands by, and is lost now and then.
//
// A step is a barrier (all gave their gradients) and a commit; the state is a chain of hashes over
// the steps. TRIREME_SOAK sets the number of deaths (`make soak`), TRIREME_SOAK_SEED the random
// choices.
#include "job.h"

#include <trireme/base/hash.h>
#include <trireme/membership/arrival.h>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <random>

namespace trireme::membership::cluster_test {
namespace {

constexpr int kProcesses = 4;
constexpr Milliseconds kWait{20000};
constexpr Milliseconds kNewcomerWait{500};  // A newcomer then asks for the coordinator again.
const MemberOptions kMember{.timeout = kWait, .heartbeat_interval = Milliseconds(50)};

int deaths_wanted() {
  const char* const text = std::getenv("TRIREME_SOAK");
  return text ? std::max(20, 10 * std::atoi(text)) : 20;
}

uint64_t seed_wanted() {
  const char* const text = std::getenv("TRIREME_SOAK_SEED");
  return text ? std::strtoull(text, nullptr, 10) : std::random_device()();
}

uint64_t next_state(uint64_t state, int64_t step) {
  return mix64(state, static_cast<uint64_t>(step));
}

struct Cluster {
  explicit Cluster(int wanted) : wanted_deaths(wanted), first(new_coordinator()) {}

  std::unique_ptr<Coordinator> new_coordinator() const {
    return std::make_unique<Coordinator>(
        kAnyPort, kToken, MembershipOptions{.workers = kProcesses},
        RosterOptions{.minimum = 1, .maximum = kProcesses, .target = kProcesses});
  }
  // A newcomer does not know which process has taken over. It asks here, as it would ask a
  // launcher.
  net::Endpoint coordinator() const {
    const std::lock_guard lock(mutex);
    return known;
  }
  void learn(const net::Endpoint& where) {
    const std::lock_guard lock(mutex);
    known = where;
  }

  // Whether a member dies now. At least one member of each generation survives, because nothing is
  // saved here. The launcher's coordinator dies too, after half of the deaths.
  bool strikes(int generation, int workers, int64_t step) {
    const std::lock_guard lock(mutex);
    if (happened >= wanted_deaths || deaths[generation] >= workers - 1) return false;
    ++deaths[generation];
    if (++happened == wanted_deaths / 2) first.reset();
    if (happened == wanted_deaths) last_step = step + 20;
    return true;
  }

  const int wanted_deaths;
  std::atomic<int64_t> last_step{std::numeric_limits<int64_t>::max()};
  int happened = 0;
  std::map<int, int> deaths;  // The number of deaths in each generation.
  std::atomic<int64_t> next_process{0};
  std::atomic<bool> finished{false};
  mutable std::mutex mutex;
  std::unique_ptr<Coordinator> first;
  net::Endpoint known = first->endpoint();
};

// One thread of the cluster: a process, and after its death the next one in its place.
class Player {
 public:
  Player(Cluster& cluster, uint64_t seed) : cluster_(cluster), random_(seed) {}

  void play() {
    while (!cluster_.finished) {
      begin_as_a_new_process();
      while (!cluster_.finished && lives_through_a_generation()) {
      }
    }
  }
  int64_t step() const { return step_; }
  uint64_t state() const { return state_; }
  int last_generation() const { return generation_; }
  std::string trouble() const { return trouble_; }

 private:
  void begin_as_a_new_process() {
    process_ = cluster_.next_process++;
    step_ = -1;
    generation_ = -1;
    state_ = 0;
    former_.reset();
    member_.reset();  // The process before it ends without a goodbye.
    arrival_.reset();
    standby_ = std::make_unique<Coordinator>(kAnyPort, kToken);
    coordinator_ = cluster_.coordinator();
  }

  // Returns false if the process was killed or is not wanted.
  bool lives_through_a_generation() {
    try {
      const auto place = arrive();
      if (!place) return false;
      if (place->generation <= generation_) complain("generation after generation did not grow");
      generation_ = place->generation;
      member_ = std::make_unique<Member>(coordinator_, kToken, place->worker, place->workers,
                                         place->generation, std::map<std::string, std::string>{},
                                         kMember);
      take_state(*place);
      while (step_ < cluster_.last_step) {
        if (is_struck(place->workers)) return false;
        member_->barrier(std::to_string(step_));
        state_ = next_state(state_, step_++);
        if (!member_->regroup_wanted()) continue;
        reason_ = "asked to";  // Members that have not seen the request give up the next step.
        return true;
      }
      member_->leave();
      cluster_.finished = true;
      return false;
    } catch (const NoGeneration&) {
      return false;  // A launcher would start another process.
    } catch (const Error& error) {
      if (error.code() != ErrorCode::peer_lost && error.code() != ErrorCode::timeout &&
          error.code() != ErrorCode::aborted)
        complain(error.what());
      reason_ = "lost";
      return former_.has_value();
    }
  }

  std::optional<Arrival::Place> arrive() {
    auto arrival = std::make_unique<Arrival>(
        coordinator_, kToken,
        Arrival::Newcomer{process_, step_, std::exchange(reason_, {}),
                          [this](const auto&) { return standby_->endpoint(); }},
        former_, Deadline::after(former_ ? kWait : kNewcomerWait));
    member_.reset();  // If it left earlier, it would count as lost.
    arrival_ = std::move(arrival);
    coordinator_ = arrival_->coordinator();
    auto place = arrival_->wait(Deadline::after(kWait));
    if (place) former_ = place->former;
    if (place) cluster_.learn(coordinator_);
    return place;
  }

  void take_state(const Arrival::Place& place) {
    if (place.worker == 0) {
      step_ = std::max<int64_t>(step_, 0);
      return member_->set("state", std::to_string(step_) + " " + std::to_string(state_));
    }
    const std::string text = member_->get("state", Deadline::after(kWait));
    const int64_t newest = std::stoll(text);
    if (newest < step_) complain("worker 0 has not the newest state");
    if (step_ >= 0 && newest > step_ + 1) complain("a member was more than one step behind");
    step_ = newest;
    state_ = std::stoull(text.substr(text.find(' ')));
  }

  bool is_struck(int workers) {
    return std::uniform_int_distribution<>(0, 20)(random_) == 0 &&
           cluster_.strikes(generation_, workers, step_);
  }
  void complain(const std::string& what) {
    trouble_ += what + "\n";
    cluster_.finished = true;
  }

  Cluster& cluster_;
  std::mt19937_64 random_;
  std::unique_ptr<Coordinator> standby_;
  std::unique_ptr<Member> member_;
  std::unique_ptr<Arrival> arrival_;  // The last arrival.
  net::Endpoint coordinator_;
  std::optional<Former> former_;
  int64_t process_ = 0, step_ = -1;
  uint64_t state_ = 0;
  int generation_ = -1;
  std::string reason_, trouble_;
};

TEST(ElasticCluster, ContinuesThroughRandomDeathsOfProcessesAndCoordinators) {
  const uint64_t seed = seed_wanted();
  RecordProperty("seed", std::to_string(seed));
  Cluster cluster(deaths_wanted());
  std::vector<Player> players;
  for (int i = 0; i < kProcesses; ++i)
    players.emplace_back(cluster, mix64(seed, static_cast<uint64_t>(i)));
  on_each(kProcesses, [&](int i) { players[static_cast<size_t>(i)].play(); });

  for (const Player& player : players) EXPECT_EQ(player.trouble(), "") << "seed " << seed;
  ASSERT_EQ(cluster.happened, cluster.wanted_deaths) << "seed " << seed;
  uint64_t expected = 0;
  for (int64_t step = 0; step < cluster.last_step; ++step) expected = next_state(expected, step);
  int finished = 0;
  for (const Player& player : players) {
    if (player.step() != cluster.last_step) continue;
    ++finished;
    EXPECT_EQ(player.state(), expected) << "seed " << seed;
  }
  EXPECT_GE(finished, 1) << "seed " << seed;
}

}  // namespace
}  // namespace trireme::membership::cluster_test
