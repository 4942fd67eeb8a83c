#include <trireme/membership/claim.h>

#include <gmock/gmock.h>
#include <trireme/net/control.h>
#include <mutex>
#include <optional>
#include <thread>

#include "../net/silent_port.h"
#include "published.h"

namespace trireme::membership::claim_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = Deadline::Clock;

constexpr ClaimTimes kShort{.lease = 2s, .margin = 500ms, .renewal = 100ms};
constexpr ClaimTimes kLong{.lease = 60s};
const net::Endpoint kNobody{"127.0.0.1", 1};  // Nothing listens there.

// A claim that records its events.
class Claimant {
 public:
  Claimant(const net::EtcdServer& server, const net::Endpoint& self, Claim::For whom,
           ClaimTimes times = kShort, const std::string& token = kToken)
      : claim_(std::make_unique<Claim>(
            server.url("job"), self, token, whom,
            Claim::Events{.held =
                              [this](const std::stop_token&, Clock::time_point until) {
                                const std::lock_guard lock(mutex_);
                                until_ = until;
                                if (!since_) since_ = Clock::now();
                              },
                          .taken =
                              [this](const std::stop_token&, const std::string& by) {
                                const std::lock_guard lock(mutex_);
                                taken_by_ = by;
                              }},
            times)) {}
  Claim& operator*() { return *claim_; }
  Claim* operator->() { return claim_.get(); }
  void vanish() { claim_.reset(); }  // Acts like a killed process.
  Clock::time_point until() const {
    const std::lock_guard lock(mutex_);
    return until_;
  }
  std::optional<Clock::time_point> since() const {
    const std::lock_guard lock(mutex_);
    return since_;
  }
  bool holds() const { return until() > Clock::now(); }
  std::string taken_by() const {
    const std::lock_guard lock(mutex_);
    return taken_by_;
  }

 private:
  mutable std::mutex mutex_;
  Clock::time_point until_;
  std::optional<Clock::time_point> since_;
  std::string taken_by_;
  std::unique_ptr<Claim> claim_;
};

TEST(Claim, PublishesItsHolderUntilItIsGivenBack) {
  TRIREME_START_ETCD(server);
  Claimant claimant(*server, kNobody, Claim::For::new_job);
  claimant->wait_until_held();
  EXPECT_EQ(published(*server), kNobody.describe());
  const auto until = claimant.until();
  EXPECT_TRUE(eventually([&] { return claimant.until() > until; }));  // It was renewed.
  claimant->withdraw(soon());
  EXPECT_EQ(published(*server), "");
}

TEST(Claim, ASecondJobOfTheNameIsRefusedAtOnceWhateverItsToken) {
  TRIREME_START_ETCD(server);
  const net::ControlServer first({"127.0.0.1", 0}, kToken, {});
  Claimant claimant(*server, first.endpoint(), Claim::For::new_job, kLong);
  claimant->wait_until_held();
  for (const std::string& token : {kToken, std::string("another")}) {
    Claimant second(*server, kNobody, Claim::For::new_job, kLong, token);
    const Error refused = error_of([&] { second->wait_until_held(); });
    EXPECT_EQ(refused.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(refused.what(), AllOf(HasSubstr("the name 'job' is running"),
                                      HasSubstr(first.endpoint().describe())));
  }
}

TEST(Claim, ANewJobWaitsUntilTheLeaseOfADeadOneHasRunOut) {
  TRIREME_START_ETCD(server);
  Claimant dead(*server, kNobody, Claim::For::new_job);
  dead->wait_until_held();
  dead.vanish();
  Claimant next(*server, {"127.0.0.1", 2}, Claim::For::new_job);
  next->wait_until_held();
  EXPECT_GE(*next.since(), dead.until());
}

TEST(Claim, WaitsForAnEtcdThatIsSilentAtFirst) {
  TRIREME_START_ETCD(server);
  server->stop();
  Claimant claimant(*server, kNobody, Claim::For::new_job);
  std::jthread later([&] {
    std::this_thread::sleep_for(1500ms);  // The silence outlasts the time-out of one request.
    server->go_on();
  });
  claimant->wait_until_held();
  EXPECT_EQ(published(*server), kNobody.describe());
}

TEST(Claim, AStopEndsTheWaitForEtcd) {
  Claim claim({{kNobody}, "job"}, kNobody, kToken, Claim::For::new_job, {});
  const Error stopped = error_of([&] { claim.wait_until_held(60s, [] { return true; }); });
  EXPECT_EQ(stopped.code(), ErrorCode::aborted);
}

TEST(Claim, ReportsThatEtcdDoesNotAnswer) {
  Claim claim({{kNobody}, "job"}, kNobody, kToken, Claim::For::new_job, {});
  const Error failed = error_of([&] { claim.wait_until_held(200ms); });
  EXPECT_EQ(failed.code(), ErrorCode::timeout);
  EXPECT_THAT(failed.what(), AllOf(HasSubstr("etcd does not answer"), HasSubstr("127.0.0.1:1")));
  // The server's failure brings no remedy of its own.
  const std::string text = failed.what();
  EXPECT_EQ(text.find("try:"), text.rfind("try:")) << text;
}

TEST(Claim, ASuccessorFollowsAtOnceWhenNothingListensAnyMore) {
  TRIREME_START_ETCD(server);
  Claimant dead(*server, kNobody, Claim::For::new_job, kLong);
  dead->wait_until_held();
  dead.vanish();
  Claimant successor(*server, {"127.0.0.1", 2}, Claim::For::successor);
  EXPECT_TRUE(eventually([&] { return successor.holds(); }));
  EXPECT_EQ(published(*server), "127.0.0.1:2");
}

TEST(Claim, ASuccessorOfASilentHolderWaitsUntilThatOneCountsItsNameAsLost) {
  TRIREME_START_ETCD(server);
  const net::SilentPort silent;
  Claimant stopped(*server, silent.endpoint(), Claim::For::new_job);
  stopped->wait_until_held();
  Claimant successor(*server, kNobody, Claim::For::successor);
  stopped.vanish();
  EXPECT_TRUE(eventually([&] { return successor.holds(); }));
  EXPECT_GE(*successor.since(), stopped.until());
}

TEST(Claim, ASuccessorGivesWayToOneThatLives) {
  TRIREME_START_ETCD(server);
  const net::ControlServer living({"127.0.0.1", 0}, kToken, {});
  Claimant first(*server, living.endpoint(), Claim::For::successor);
  ASSERT_TRUE(eventually([&] { return first.holds(); }));
  Claimant second(*server, kNobody, Claim::For::successor);
  EXPECT_TRUE(eventually([&] { return second.taken_by() == living.endpoint().describe(); }));
  EXPECT_FALSE(second.holds());
}

TEST(Claim, OnlyOneOfTwoSuccessorsHoldsTheName) {
  TRIREME_START_ETCD(server);
  const net::ControlServer one({"127.0.0.1", 0}, kToken, {}), other({"127.0.0.1", 0}, kToken, {});
  Claimant first(*server, one.endpoint(), Claim::For::successor),
      second(*server, other.endpoint(), Claim::For::successor);
  EXPECT_TRUE(eventually([&] { return first.taken_by().empty() != second.taken_by().empty(); }));
  EXPECT_TRUE(eventually([&] { return first.holds() != second.holds(); }));
}

TEST(Claim, EndsWithoutRenewalAndIsHeldAgainWhenEtcdIsBack) {
  TRIREME_START_ETCD(server);
  Claimant claimant(*server, kNobody, Claim::For::new_job);
  claimant->wait_until_held();
  server->stop();
  EXPECT_TRUE(eventually([&] { return !claimant.holds(); }));
  server->go_on();
  EXPECT_TRUE(eventually([&] { return claimant.holds(); }));
  EXPECT_EQ(published(*server), kNobody.describe());
}

TEST(Claim, ReportsThatAnotherCoordinatorHasItsName) {
  TRIREME_START_ETCD(server);
  Claimant claimant(*server, kNobody, Claim::For::new_job);
  claimant->wait_until_held();
  publish(*server, {"127.0.0.1", 9}, 60s);
  EXPECT_TRUE(eventually([&] { return claimant.taken_by() == "127.0.0.1:9"; }));
}

}  // namespace
}  // namespace trireme::membership::claim_test
