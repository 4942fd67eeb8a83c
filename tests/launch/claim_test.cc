#include <trireme/launch/claim.h>

#include <gmock/gmock.h>
#include <trireme/launch/lookup.h>
#include <trireme/net/control.h>
#include <trireme/net/etcd.h>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <mutex>
#include <optional>

#include "../net/etcd_server.h"
#include "job.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = Deadline::Clock;

constexpr ClaimTimes kShort{.lease = 2s, .margin = 500ms, .renewal = 100ms};
constexpr ClaimTimes kLong{.lease = 60s};
const net::Endpoint kNobody{"127.0.0.1", 1};  // Nobody listens there.

// A claim and what it told.
class Claimant {
 public:
  Claimant(const net::EtcdServer& server, const net::Endpoint& self, Claim::For whom, ClaimTimes times = kShort,
           const std::string& token = kToken)
      : claim_(std::make_unique<Claim>(server.url("job"), self, token, whom,
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
  void vanish() { claim_.reset(); }  // As a process that was killed.
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

std::string holder(const net::EtcdServer& server) {
  const auto entry = net::Etcd({server.endpoint()}).get(coordinator_key("job"), soon());
  return entry ? entry->value : "";
}

// As another coordinator would that has taken the name.
void write_holder(const net::EtcdServer& server, const std::string& value, std::chrono::seconds lease) {
  net::Etcd etcd({server.endpoint()});
  const auto entry = etcd.get(coordinator_key("job"), soon());
  ASSERT_TRUE(etcd.replace(coordinator_key("job"), value, etcd.grant(lease, soon()), entry ? entry->revision : 0, soon()));
}

// A port where connections are taken and nothing is ever answered, as of a process that is stopped.
struct Silent {
  asio::io_context context;
  asio::ip::tcp::acceptor acceptor{context, {asio::ip::make_address("127.0.0.1"), 0}};
  net::Endpoint endpoint() const { return {"127.0.0.1", acceptor.local_endpoint().port()}; }
};

TEST(Claim, PublishesItsHolderUntilItIsGivenBack) {
  TRIREME_START_ETCD(server);
  Claimant claimant(*server, kNobody, Claim::For::new_job);
  claimant->wait_until_held();
  EXPECT_EQ(holder(*server), kNobody.describe());
  const auto until = claimant.until();
  EXPECT_TRUE(eventually([&] { return claimant.until() > until; }));  // Renewed.
  claimant->withdraw(soon());
  EXPECT_EQ(holder(*server), "");
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
    EXPECT_THAT(refused.what(), AllOf(HasSubstr("the name 'job' lives"), HasSubstr(first.endpoint().describe())));
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

TEST(Claim, WhereEtcdDoesNotAnswerThatIsSaidAtOnce) {
  Claim claim({{kNobody}, "job"}, kNobody, kToken, Claim::For::new_job, {});
  const Error failed = error_of([&] { claim.wait_until_held(); });
  EXPECT_EQ(failed.code(), ErrorCode::not_found);
  EXPECT_THAT(failed.what(), AllOf(HasSubstr("etcd does not answer"), HasSubstr("127.0.0.1:1")));
}

TEST(Claim, ASuccessorFollowsAtOnceWhereNobodyListensAnyMore) {
  TRIREME_START_ETCD(server);
  Claimant dead(*server, kNobody, Claim::For::new_job, kLong);
  dead->wait_until_held();
  dead.vanish();
  Claimant successor(*server, {"127.0.0.1", 2}, Claim::For::successor);
  EXPECT_TRUE(eventually([&] { return successor.holds(); }));
  EXPECT_EQ(holder(*server), "127.0.0.1:2");
}

TEST(Claim, ASuccessorOfASilentOneHoldsTheNameOnlyWhenThatOneTakesItForLost) {
  TRIREME_START_ETCD(server);
  const Silent silent;
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

TEST(Claim, OfTwoSuccessorsOneHoldsTheName) {
  TRIREME_START_ETCD(server);
  const net::ControlServer one({"127.0.0.1", 0}, kToken, {}), other({"127.0.0.1", 0}, kToken, {});
  Claimant first(*server, one.endpoint(), Claim::For::successor), second(*server, other.endpoint(), Claim::For::successor);
  EXPECT_TRUE(eventually([&] { return first.taken_by().empty() != second.taken_by().empty(); }));
  EXPECT_TRUE(eventually([&] { return first.holds() != second.holds(); }));
}

TEST(Claim, WhatIsNotRenewedIsOverAndHeldAgainWhenEtcdIsBack) {
  TRIREME_START_ETCD(server);
  Claimant claimant(*server, kNobody, Claim::For::new_job);
  claimant->wait_until_held();
  server->stop();
  EXPECT_TRUE(eventually([&] { return !claimant.holds(); }));
  server->go_on();
  EXPECT_TRUE(eventually([&] { return claimant.holds(); }));
  EXPECT_EQ(holder(*server), kNobody.describe());
}

TEST(Claim, WhoFindsItsNameAnothersIsTold) {
  TRIREME_START_ETCD(server);
  Claimant claimant(*server, kNobody, Claim::For::new_job);
  claimant->wait_until_held();
  write_holder(*server, "127.0.0.1:9", 60s);
  EXPECT_TRUE(eventually([&] { return claimant.taken_by() == "127.0.0.1:9"; }));
}

}  // namespace
}  // namespace trireme::launch
