#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/membership/membership.h>
#include <trireme/membership/protocol.h>
#include <algorithm>

namespace trireme::membership::membership_test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Messages = Membership::Messages;
using Time = Membership::Time;

constexpr Time kStart{};
constexpr Time kNever = Time::max();
constexpr int kSender = Membership::Outgoing::kSender;

MembershipOptions options_for(int workers) {
  return {.workers = workers, .join_timeout = 60s, .heartbeat_timeout = 10s, .generation = 5};
}
JoinRequest joiner(int worker, int workers) {
  return {.worker = worker,
          .workers = workers,
          .generation = 5,
          .host = std::string(1, static_cast<char>('a' + worker)),
          .address = "10.0.0." + std::to_string(worker),
          .pid = 100 + worker,
          .must_agree = {{"replicas", "2"}}};
}
// A job whose workers have all joined.
struct Running : Membership {
  explicit Running(int workers) : Membership(options_for(workers)) {
    for (int worker = 0; worker < workers; ++worker) join(joiner(worker, workers), kStart);
  }
};

std::vector<int> receivers(const Messages& messages, const std::string& op) {
  std::vector<int> to;
  for (const auto& [worker, message] : messages) {
    if (message.at("op") == op) to.push_back(worker);
  }
  return to;
}
std::string what_of(const Messages& messages, int to) {
  for (const auto& [worker, message] : messages) {
    if (worker == to && message.contains("what")) return message.at("what");
  }
  return "nothing";
}
ErrorCode code_of(const Messages& messages, int to) {
  for (const auto& [worker, message] : messages) {
    if (const auto failure = failure_in(message); failure && worker == to) return failure->code;
  }
  ADD_FAILURE() << "worker " << to << " got no failure";
  return ErrorCode::internal;
}
bool is_success(const Membership::Outgoing& outgoing, int64_t request) {
  return outgoing.message.at("op") == "reply" && outgoing.message.at("id") == request &&
         !failure_in(outgoing.message);
}

TEST(Membership, InEveryOrderOfJoinsAllAreToldByTheLastOne) {
  std::vector<int> order{0, 1, 2};
  do {
    Membership membership(options_for(3));
    EXPECT_THAT(membership.join(joiner(order[0], 3), kStart), IsEmpty());
    EXPECT_THAT(membership.join(joiner(order[1], 3), kStart), IsEmpty());
    const auto messages = membership.join(joiner(order[2], 3), kStart);
    EXPECT_THAT(receivers(messages, "joined"), ElementsAre(0, 1, 2));
    const Json& peers = messages.front().message.at("peers");
    ASSERT_EQ(peers.size(), 3u);
    for (int worker = 0; worker < 3; ++worker) {
      EXPECT_EQ(peers[worker].at("worker"), worker);
      EXPECT_EQ(peers[worker].at("host"), joiner(worker, 3).host);
      EXPECT_EQ(peers[worker].at("address"), joiner(worker, 3).address);
      EXPECT_EQ(peers[worker].at("pid"), 100 + worker);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Membership, InEveryOrderOfJoinsADifferenceNamesTwoWorkersAndBothValues) {
  std::vector<int> order{0, 1, 2};
  do {
    Membership membership(options_for(3));
    std::vector<int> refused;
    std::string what;
    for (const int worker : order) {
      JoinRequest request = joiner(worker, 3);
      if (worker == 1) request.must_agree["replicas"] = "4";
      const auto messages = membership.join(request, kStart);
      for (const int to : receivers(messages, "refused"))
        refused.push_back(to == kSender ? worker : to);
      EXPECT_THAT(receivers(messages, "joined"), IsEmpty());
      if (!messages.empty()) what = messages.front().message.at("what");
    }
    std::sort(refused.begin(), refused.end());
    EXPECT_THAT(refused, ElementsAre(0, 1, 2));
    EXPECT_THAT(what, AllOf(HasSubstr("worker 1 (host b)"), HasSubstr("replicas"),
                            HasSubstr("'2'"), HasSubstr("'4'")));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Membership, AWorkerBeyondTheJobIsNamed) {
  for (const int worker : {-1, 2, 7}) {
    Membership membership(options_for(2));
    const auto messages = membership.join(joiner(worker, 2), kStart);
    EXPECT_THAT(receivers(messages, "refused"), ElementsAre(kSender));
    EXPECT_EQ(code_of(messages, kSender), ErrorCode::invalid_argument);
    EXPECT_THAT(what_of(messages, kSender),
                AllOf(HasSubstr("worker " + std::to_string(worker)), HasSubstr("0 to 1")));
  }
}

TEST(Membership, ASecondWorkerOfOneNumberIsNamedAndTheFirstContinues) {
  Membership membership(options_for(2));
  membership.join(joiner(1, 2), kStart);
  JoinRequest twin = joiner(1, 2);
  twin.host = "z";
  twin.pid = 999;
  const auto messages = membership.join(twin, kStart);
  EXPECT_THAT(receivers(messages, "refused"), ElementsAre(kSender));
  EXPECT_THAT(what_of(messages, kSender), AllOf(HasSubstr("worker 1 (host z)"), HasSubstr("999"),
                                                HasSubstr("host b"), HasSubstr("101")));
  EXPECT_THAT(receivers(membership.join(joiner(0, 2), kStart), "joined"), ElementsAre(0, 1));
}

TEST(Membership, ADifferentNumberOfWorkersIsRefused) {
  Membership membership(options_for(2));
  const auto messages = membership.join(joiner(1, 3), kStart);
  EXPECT_THAT(what_of(messages, kSender),
              AllOf(HasSubstr("worker 1 (host b)"), HasSubstr("3 workers"), HasSubstr("has 2")));
}

TEST(Membership, AnotherGenerationIsRefused) {
  Membership membership(options_for(2));
  JoinRequest request = joiner(0, 2);
  request.generation = 4;
  EXPECT_THAT(what_of(membership.join(request, kStart), kSender),
              AllOf(HasSubstr("generation 4"), HasSubstr("generation 5")));
  EXPECT_TRUE(membership.refuse_generation(4));
  EXPECT_TRUE(membership.refuse_generation(6));
  EXPECT_FALSE(membership.refuse_generation(5));
}

TEST(Membership, MissingWorkersAreNamedAtTheJoinTimeout) {
  Membership membership(options_for(4));
  membership.join(joiner(0, 4), kStart + 1s);
  membership.join(joiner(2, 4), kStart + 30s);
  membership.heard(0, kStart + 60s);
  membership.heard(2, kStart + 60s);
  EXPECT_THAT(membership.tick(kStart + 60s), IsEmpty());
  const auto messages = membership.tick(kStart + 61s);
  EXPECT_THAT(receivers(messages, "refused"), ElementsAre(0, 2));
  EXPECT_EQ(code_of(messages, 0), ErrorCode::timeout);
  EXPECT_THAT(what_of(messages, 0),
              AllOf(HasSubstr("worker 1 and worker 3 of 4"), HasSubstr("1 min")));
  EXPECT_THAT(what_of(membership.join(joiner(1, 4), kStart + 62s), kSender),
              HasSubstr("worker 1 and worker 3 of 4"));
  EXPECT_FALSE(membership.first_lost());
}

TEST(Membership, AJoinersOwnDeadlineCountsToo) {
  Membership membership(options_for(2));
  JoinRequest hasty = joiner(0, 2);
  hasty.deadline = kStart + 2s;
  membership.join(hasty, kStart);
  EXPECT_THAT(membership.tick(kStart + 1s), IsEmpty());
  EXPECT_THAT(what_of(membership.tick(kStart + 2s), 0),
              AllOf(HasSubstr("worker 1 of 2"), HasSubstr("2.0 s")));
}

TEST(Membership, ARefusalIsNamedWithTheMissingWorkers) {
  Membership membership(options_for(2));
  membership.join(joiner(0, 2), kStart);
  membership.join(joiner(1, 3), kStart);
  membership.heard(0, kStart + 60s);
  EXPECT_THAT(what_of(membership.tick(kStart + 60s), 0),
              AllOf(HasSubstr("worker 1 of 2"), HasSubstr("a job of 3 workers")));
}

TEST(Membership, ALostWorkerIsToldToAllOthersAtOnceAndRemembered) {
  Running membership(3);
  membership.beat(1, {{Phase::backward, 40}, kStart + 1s, {}}, kStart + 1s);
  membership.beat(2, {{Phase::exchange, 40, {1, true, true, "gradients", 2048}}, kStart + 2s, {}},
                  kStart + 3s);
  const auto messages = membership.lost(1, "connection closed");
  EXPECT_THAT(receivers(messages, "lost"), ElementsAre(0, 2));
  const LostWorker told = lost_from(messages.front().message);
  EXPECT_EQ(
      told.describe(),
      "worker 1 (host b, pid 101) was lost in backward of step 40: connection closed; it had "
      "been there for 2.0 s, and worker 2 (host "
      "c) waits for it in exchange of step 40 (collective 1: gradients of 2.0 KB)");
  EXPECT_EQ(membership.first_lost()->describe(), told.describe());
}

TEST(Membership, OnlyTheFirstLostWorkerIsTold) {
  Running membership(3);
  membership.lost(1, "connection closed");
  EXPECT_THAT(membership.lost(2, "connection closed"), IsEmpty());
  EXPECT_EQ(membership.first_lost()->worker, 1);
}

TEST(Membership, ALaterReportOfALostWorkerReplacesTheReason) {
  Running membership(2);
  membership.lost(1, "connection closed");
  EXPECT_THAT(membership.lost(1, "killed by signal 9 (SIGKILL)"), IsEmpty());
  EXPECT_EQ(membership.first_lost()->reason, "killed by signal 9 (SIGKILL)");
}

TEST(Membership, AWorkerLostBeforeItJoinedEndsTheWaitOfJoinedWorkers) {
  Membership membership(options_for(3));
  membership.join(joiner(0, 3), kStart);
  const auto messages = membership.lost(2, "exited with code 1");
  EXPECT_THAT(receivers(messages, "lost"), ElementsAre(0));
  EXPECT_THAT(receivers(messages, "refused"), ElementsAre(0));
  EXPECT_EQ(code_of(messages, 0), ErrorCode::peer_lost);
  EXPECT_THAT(what_of(messages, 0), AllOf(HasSubstr("worker 2"), HasSubstr("exited with code 1")));
  EXPECT_EQ(code_of(membership.join(joiner(1, 3), kStart), kSender), ErrorCode::peer_lost);
}

TEST(Membership, ASilentWorkerIsLostAndIsTold) {
  Running membership(3);
  for (int second = 1; second <= 11; ++second) {
    const Time now = kStart + std::chrono::seconds(second);
    membership.beat(0, {{Phase::data, 2}, now, {}}, now);
    membership.heard(2, now);
    const auto messages = membership.tick(now);
    if (second <= 10) {
      EXPECT_THAT(messages, IsEmpty()) << second;
    } else {
      EXPECT_THAT(receivers(messages, "lost"), ElementsAre(0, 2, 1));
    }
  }
  EXPECT_EQ(membership.first_lost()->worker, 1);
  EXPECT_EQ(membership.first_lost()->reason, "silent for 11.0 s");
}

TEST(Membership, APauseOfTheCoordinatorIsNotTheWorkersSilence) {
  Running membership(2);
  membership.tick(kStart);
  EXPECT_THAT(membership.tick(kStart + 1h), IsEmpty());
  EXPECT_FALSE(membership.first_lost());
}

TEST(Membership, AWorkerCannotBeLostAfterItsGoodbye) {
  Running membership(2);
  EXPECT_THAT(membership.goodbye(1), IsEmpty());
  EXPECT_TRUE(membership.said_goodbye(1));
  EXPECT_FALSE(membership.said_goodbye(0));
  EXPECT_THAT(membership.lost(1, "connection closed"), IsEmpty());
  EXPECT_FALSE(membership.first_lost());
  membership.heard(0, kStart + 1min);
  EXPECT_THAT(membership.tick(kStart + 1min), IsEmpty());
}

TEST(Membership, KnowsWhatWorkersDo) {
  Running membership(2);
  EXPECT_EQ(membership.last_phase(0).describe(), "connecting");
  membership.beat(0, {{Phase::forward, 1}, kStart, {}}, kStart);
  EXPECT_EQ(membership.last_phase(0).describe(), "forward of step 1");
  EXPECT_FALSE(membership.any_step_finished());
  membership.beat(1, {{Phase::data, 2}, kStart, {}}, kStart);
  EXPECT_TRUE(membership.any_step_finished());
}

TEST(Membership, KnowsWhetherAnyoneIsPresent) {
  Membership membership(options_for(2));
  EXPECT_FALSE(membership.anyone_present());
  membership.join(joiner(0, 2), kStart);
  membership.join(joiner(1, 2), kStart);
  membership.goodbye(0);
  EXPECT_TRUE(membership.anyone_present());
  membership.lost(1, "connection closed");
  EXPECT_FALSE(membership.anyone_present());
}

TEST(MembershipMeeting, InEveryOrderOfArrivalsTheLastOneFreesAll) {
  std::vector<int> order{0, 1, 2};
  do {
    Running membership(3);
    EXPECT_THAT(membership.barrier(order[0], 10, "end", kStart, kNever), IsEmpty());
    EXPECT_THAT(membership.barrier(order[1], 11, "end", kStart, kNever), IsEmpty());
    const auto messages = membership.barrier(order[2], 12, "end", kStart, kNever);
    ASSERT_THAT(messages, SizeIs(3));
    for (const auto& outgoing : messages) {
      const auto position = std::find(order.begin(), order.end(), outgoing.to) - order.begin();
      EXPECT_TRUE(is_success(outgoing, 10 + position));
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(MembershipMeeting, TheSameNameServesAgainAndAgain) {
  Running membership(2);
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(membership.barrier(0, round, "step", kStart, kNever), IsEmpty());
    EXPECT_THAT(membership.barrier(1, round, "step", kStart, kNever), SizeIs(2));
  }
}

TEST(MembershipMeeting, MeetingsOfDifferentNamesAreSeparate) {
  Running membership(2);
  EXPECT_THAT(membership.barrier(0, 1, "a", kStart, kNever), IsEmpty());
  EXPECT_THAT(membership.barrier(1, 1, "b", kStart, kNever), IsEmpty());
  EXPECT_THAT(membership.agree(1, 2, "a", {}, kStart, kNever), IsEmpty());
  EXPECT_THAT(membership.barrier(1, 3, "a", kStart, kNever), SizeIs(2));
}

TEST(MembershipMeeting, EqualFactsAgree) {
  Running membership(2);
  membership.agree(0, 1, "model", {{"layers", "3"}}, kStart, kNever);
  const auto messages = membership.agree(1, 1, "model", {{"layers", "3"}}, kStart, kNever);
  ASSERT_THAT(messages, SizeIs(2));
  EXPECT_TRUE(is_success(messages[0], 1) && is_success(messages[1], 1));
}

TEST(MembershipMeeting, InEveryOrderADifferenceNamesTheSameTwoWorkersAndTheFirstKey) {
  std::vector<int> order{0, 1, 2};
  do {
    Running membership(3);
    Messages messages;
    for (const int worker : order) {
      Facts facts{{"batch", "64"}, {"lr", "0.1"}, {"seed", "7"}};
      if (worker == 2) facts = {{"batch", "64"}, {"lr", "0.2"}, {"seed", "8"}};
      messages = membership.agree(worker, 1, "configuration", facts, kStart, kNever);
    }
    ASSERT_THAT(messages, SizeIs(3));
    for (int worker = 0; worker < 3; ++worker) {
      EXPECT_EQ(code_of(messages, worker), ErrorCode::invalid_argument);
      EXPECT_EQ(what_of(messages, worker),
                "the workers differ in the comparison of 'configuration': lr is '0.1' on worker 0 "
                "(host a) and '0.2' on worker 2 (host c)");
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(MembershipMeeting, AKeyThatOneSideLacksIsADifference) {
  for (const bool first_has_it : {true, false}) {
    Running membership(2);
    const Facts facts[2] = {{{"a", "1"}}, {}};
    membership.agree(0, 1, "model", facts[first_has_it ? 0 : 1], kStart, kNever);
    const auto messages =
        membership.agree(1, 1, "model", facts[first_has_it ? 1 : 0], kStart, kNever);
    EXPECT_THAT(what_of(messages, 0), AllOf(HasSubstr("'1'"), HasSubstr("not set")));
  }
}

TEST(MembershipMeeting, EnteringTwiceIsAnErrorOfThatWorkerOnly) {
  Running membership(2);
  membership.barrier(0, 1, "end", kStart, kNever);
  const auto twice = membership.barrier(0, 2, "end", kStart, kNever);
  EXPECT_EQ(code_of(twice, 0), ErrorCode::invalid_argument);
  EXPECT_THAT(membership.barrier(1, 1, "end", kStart, kNever), SizeIs(2));
}

TEST(MembershipMeeting, ALostWorkerEndsWaitsNowAndLater) {
  Running membership(3);
  membership.barrier(0, 1, "end", kStart, kNever);
  membership.agree(2, 2, "model", {}, kStart, kNever);
  const auto messages = membership.lost(1, "connection closed");
  EXPECT_THAT(receivers(messages, "lost"), ElementsAre(0, 2));
  EXPECT_THAT(receivers(messages, "reply"), testing::UnorderedElementsAre(0, 2));
  EXPECT_EQ(code_of(messages, 0), ErrorCode::peer_lost);
  EXPECT_THAT(what_of(messages, 2), HasSubstr("worker 1 (host b, pid 101) was lost"));
  EXPECT_EQ(code_of(membership.barrier(0, 3, "again", kStart, kNever), 0), ErrorCode::peer_lost);
}

TEST(MembershipMeeting, AGoodbyeEndsWaitsNowAndLater) {
  Running membership(3);
  membership.barrier(0, 1, "end", kStart, kNever);
  const auto messages = membership.goodbye(1);
  EXPECT_THAT(receivers(messages, "reply"), ElementsAre(0));
  EXPECT_EQ(code_of(messages, 0), ErrorCode::peer_lost);
  EXPECT_THAT(what_of(messages, 0),
              AllOf(HasSubstr("worker 1 (host b) left"), HasSubstr("barrier 'end'")));
  EXPECT_THAT(what_of(membership.barrier(2, 2, "end", kStart, kNever), 2),
              HasSubstr("worker 1 (host b) left"));
}

TEST(MembershipMeeting, ADeadlineEndsOneWaitAndNamesTheMissingWorkers) {
  Running membership(4);
  membership.barrier(0, 1, "end", kStart, kStart + 2s);
  membership.barrier(2, 2, "end", kStart + 1s, kNever);
  EXPECT_THAT(membership.tick(kStart + 1s), IsEmpty());
  const auto messages = membership.tick(kStart + 2s);
  EXPECT_THAT(receivers(messages, "reply"), ElementsAre(0));
  EXPECT_EQ(code_of(messages, 0), ErrorCode::timeout);
  EXPECT_EQ(what_of(messages, 0),
            "worker 1 (host b) and worker 3 (host d) did not come to barrier 'end' within 2.0 s");

  // The arrival of worker 0 no longer counts, but it may come again.
  membership.barrier(1, 3, "end", kStart + 3s, kNever);
  EXPECT_THAT(membership.barrier(3, 4, "end", kStart + 3s, kNever), IsEmpty());
  EXPECT_THAT(membership.barrier(0, 5, "end", kStart + 3s, kNever), SizeIs(4));
}

TEST(MembershipMeeting, OneWorkerMeetsItselfAtOnce) {
  Running membership(1);
  EXPECT_THAT(membership.barrier(0, 1, "end", kStart, kNever), SizeIs(1));
  EXPECT_FALSE(membership.nobody_to_wait_for(0));
}

TEST(Membership, ADeadlockEndsTheGenerationForAllWorkersAndIsNoLoss) {
  Running membership(2);
  const auto in_exchange = [](const std::string& operation) {
    return PhaseNow{{Phase::exchange, 4, {1, true, true, operation, 0}}, kStart, {}};
  };
  membership.agree(1, 7, "the parameters at leave()", {}, kStart, kNever);
  membership.beat(0, in_exchange("gradients"), kStart + 1s);
  membership.beat(1, in_exchange("agreement"), kStart + 1s);
  membership.tick(kStart + 1s);
  const auto messages = membership.tick(kStart + 2s);
  EXPECT_THAT(receivers(messages, "deadlock"), ElementsAre(0, 1));
  EXPECT_THAT(receivers(messages, "reply"), ElementsAre(1));
  for (const int worker : {0, 1}) {
    EXPECT_EQ(code_of(messages, worker), ErrorCode::invalid_argument);
    EXPECT_THAT(what_of(messages, worker), HasSubstr("called a different operation"));
  }
  EXPECT_THAT(membership.take_notices(), SizeIs(1));
  EXPECT_FALSE(membership.first_lost());
  EXPECT_THAT(receivers(membership.tick(kStart + 3s), "deadlock"), IsEmpty());
}

TEST(Membership, ABeatFromBeforeAGoodbyeProvesNoDeadlock) {
  Running membership(2);
  // Worker 1 has ended the collective in which worker 0 was, though worker 0 has not said so yet.
  const PhaseNow waiting{{Phase::exchange, 4, {2, true, true, "barrier", 0}}, kStart, {}};
  const PhaseNow leaving{{Phase::leaving, 4, {1, false, false, "", 0}}, kStart, {}};
  membership.beat(0, waiting, kStart + 2900ms);
  membership.beat(1, leaving, kStart + 3s);
  membership.goodbye(1);
  EXPECT_THAT(receivers(membership.tick(kStart + 3010ms), "deadlock"), IsEmpty());
  membership.beat(0, waiting, kStart + 3100ms);
  EXPECT_THAT(receivers(membership.tick(kStart + 3110ms), "deadlock"), ElementsAre(0));
}

TEST(MembershipMeeting, AWaitForAnyoneIsHopelessOnceAllOthersHaveLeft) {
  Running membership(3);
  EXPECT_FALSE(membership.nobody_to_wait_for(0));
  membership.goodbye(1);
  EXPECT_FALSE(membership.nobody_to_wait_for(0));
  membership.goodbye(2);
  EXPECT_THAT(membership.nobody_to_wait_for(0)->what, HasSubstr("left"));
  EXPECT_EQ(membership.nobody_to_wait_for(0)->code, ErrorCode::peer_lost);
}

}  // namespace
}  // namespace trireme::membership::membership_test
