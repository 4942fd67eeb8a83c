// The grammar of faults, and the places where each fault is due.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/faults/faults.h>
#include <set>

#include "../base/expect_error.h"

namespace trireme::faults_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Fault one(std::string_view text) {
  const auto faults = parse_faults(text);
  EXPECT_THAT(faults, SizeIs(1));
  return faults.at(0);
}
std::string refusal(std::string_view text) {
  return message_of(ErrorCode::invalid_argument, [&] { parse_faults(text); });
}

TEST(FaultGrammar, ReadsEachKind) {
  const auto faults = parse_faults(
      "kill:rank=2@step=40; stop:rank=1@step=60,for=3s; slow:rank=0,forward=20ms; "
      "corrupt:rank=1,exchange@step=7; drop:link=0-1@step=80; "
      "disk-full@step=90; random:seed=7,faults=5,steps=200");
  ASSERT_THAT(faults, SizeIs(7));
  EXPECT_EQ(faults[0].kind, FaultKind::kill);
  EXPECT_EQ(faults[0].rank, 2);
  EXPECT_EQ(faults[0].step, 40);
  EXPECT_EQ(faults[1].duration, Milliseconds(3000));
  EXPECT_EQ(faults[2].duration, Milliseconds(20));
  EXPECT_EQ(faults[2].phase, Phase::forward);
  EXPECT_EQ(faults[3].step, 7);
  EXPECT_EQ(faults[4].rank, 0);
  EXPECT_EQ(faults[4].peer, 1);
  EXPECT_EQ(faults[5].step, 90);
  EXPECT_EQ(faults[6].count, 5);
  EXPECT_EQ(to_text(faults),
            "kill:rank=2@step=40,phase=backward; stop:rank=1@step=60,phase=backward,for=3000ms; "
            "slow:rank=0,forward=20ms@step=1; "
            "corrupt:rank=1,exchange@step=7; drop:link=0-1@step=80; disk-full:rank=0@step=90; "
            "random:seed=7,faults=5,steps=200,kinds=kill+stop");
}

TEST(FaultGrammar, ReadsBackWhatItPrints) {
  const std::string text =
      "kill:rank=0@step=3,phase=exchange; stop:rank=1@step=2,phase=data; "
      "slow:rank=3,exchange=5ms@step=9; corrupt:rank=1; "
      "random:seed=1,faults=2,steps=9,kinds=kill+drop+disk-full";
  const std::string printed = to_text(parse_faults(text));
  EXPECT_EQ(to_text(parse_faults(printed)), printed);
}

TEST(FaultGrammar, TakesWordsInAnyOrderAndSpaces) {
  EXPECT_EQ(one(" kill : rank = 2 , phase=optimizer @ step = 40 ;").text(),
            one("kill@step=40,phase=optimizer,rank=2").text());
  EXPECT_THAT(parse_faults(""), IsEmpty());
  EXPECT_THAT(parse_faults(" ; "), IsEmpty());
}

TEST(FaultGrammar, NamesTheErrorAndTheRemedy) {
  EXPECT_THAT(refusal("kill:rank=1@step=2; kil:rank=2@step=40"),
              AllOf(HasSubstr("fault 2, 'kil:rank=2@step=40'"), HasSubstr("no fault 'kil'"),
                    HasSubstr("try: kill")));
  EXPECT_THAT(refusal("kill@step=40"), AllOf(HasSubstr("needs 'rank'"), HasSubstr("try: rank=1")));
  EXPECT_THAT(refusal("kill:rank=2"), HasSubstr("needs 'step'"));
  EXPECT_THAT(refusal("kill:rank=2@stp=40,step=4"),
              AllOf(HasSubstr("has no word 'stp'"), HasSubstr("try: step")));
  EXPECT_THAT(refusal("kill:rank=2,rank=3@step=4"), HasSubstr("'rank' is given twice"));
  EXPECT_THAT(refusal("kill:rank=two@step=4"),
              HasSubstr("rank is 'two', which is not a whole number"));
  EXPECT_THAT(refusal("kill:rank=-1@step=4"), HasSubstr("rank is '-1'"));
  EXPECT_THAT(refusal("kill:rank=1@step=0"), HasSubstr("step is '0'"));
  EXPECT_THAT(refusal("kill:rank=1@step=99999999999999999999"), HasSubstr("step is"));
  EXPECT_THAT(refusal("kill:rank=1@step="), HasSubstr("'step' has no value"));
  EXPECT_THAT(refusal("kill:rank=1,@step=3"), HasSubstr("a word is empty"));
  EXPECT_THAT(refusal("kill:rank=1@step=3,phase=bakward"),
              AllOf(HasSubstr("none of data, forward, backward, exchange, optimizer, checkpoint"),
                    HasSubstr("try: phase=backward")));
  EXPECT_THAT(refusal("stop:rank=1@step=3,for=long"),
              AllOf(HasSubstr("for is 'long'"), HasSubstr("duration")));
  EXPECT_THAT(refusal("slow:rank=1"), HasSubstr("needs one of forward"));
  EXPECT_THAT(refusal("slow:rank=1,forward=1ms,data=1ms"), HasSubstr("needs one of forward"));
  EXPECT_THAT(refusal("drop:link=1@step=3"), HasSubstr("not a pair of ranks"));
  EXPECT_THAT(refusal("drop:link=1-1@step=3"), HasSubstr("no link to itself"));
  EXPECT_THAT(refusal("corrupt:rank=1,exchange=3"), HasSubstr("takes no value"));
  EXPECT_THAT(refusal("random:seed=7,steps=200"), HasSubstr("needs 'faults'"));
  EXPECT_THAT(refusal("random:seed=7,faults=2,steps=200,kinds=kill+random"),
              HasSubstr("kinds has 'random'"));
  EXPECT_THAT(refusal("disk-full:rank=0@step=3,for=3s"), HasSubstr("disk-full has no word 'for'"));
}

TEST(FaultGrammar, NamesThePhaseForAWordOfEarlierVersions) {
  const auto refers = [](std::string_view text, const char* old_word, const char* remedy) {
    EXPECT_THAT(refusal(text), AllOf(HasSubstr(fmt::format("'{}' is no longer a phase", old_word)),
                                     HasSubstr(fmt::format("try: {}", remedy))));
  };
  refers("kill:rank=1@step=3,phase=collective", "collective", "phase=exchange");
  refers("kill:rank=1@step=3,phase=update", "update", "phase=optimizer");
  refers("kill:rank=1@step=3,phase=end", "end", "phase=idle");
  refers("kill:rank=1@step=3,phase=compute", "compute", "phase=forward");
  refers("slow:rank=1,compute=5ms", "compute", "forward=5ms");
  refers("slow:rank=1,collective=5ms", "collective", "exchange=5ms");
  refers("corrupt:rank=1,collective@step=3", "collective", "exchange");
}

TEST(FaultGrammar, EveryPhaseHasTheNameThatMessagesUse) {
  for (const Phase phase : {Phase::data, Phase::forward, Phase::backward, Phase::exchange,
                            Phase::optimizer, Phase::checkpoint, Phase::idle})
    EXPECT_EQ(one(fmt::format("kill:rank=1@step=3,phase={}", to_string(phase))).phase, phase);
  for (const Phase phase : {Phase::data, Phase::forward, Phase::exchange, Phase::checkpoint})
    EXPECT_EQ(one(fmt::format("slow:rank=1,{}=3ms", to_string(phase))).phase, phase);
}

TEST(FaultSchedule, RefusesRanksAndStepsThatTheRunLacks) {
  const auto refused = [](std::string_view text, int world_size, int64_t steps) {
    return message_of(ErrorCode::invalid_argument,
                      [&] { schedule_faults(parse_faults(text), world_size, steps); });
  };
  EXPECT_THAT(refused("kill:rank=2@step=4", 2, 0),
              AllOf(HasSubstr("no rank 2 among 2 replicas"), HasSubstr("from 0 to 1")));
  EXPECT_THAT(refused("drop:link=0-1@step=4", 1, 0),
              AllOf(HasSubstr("no rank 1"), HasSubstr("more --workers")));
  EXPECT_THAT(refused("kill:rank=1@step=41", 2, 40), HasSubstr("step 41 is beyond the 40 steps"));
  EXPECT_THAT(refused("random:seed=1,faults=1,steps=50", 2, 40), HasSubstr("up to step 50"));
  EXPECT_THAT(refused("random:seed=1,faults=1,steps=50,kinds=drop", 1, 0), HasSubstr("no link"));
}

TEST(FaultSchedule, DrawsTheSameFaultsFromTheSameSeed) {
  const auto drawn = [](int seed, int world_size) {
    return schedule_faults(
        parse_faults(fmt::format(
            "random:seed={},faults=40,steps=200,kinds=kill+stop+drop+slow+corrupt+disk-full",
            seed)),
        world_size);
  };
  const auto faults = drawn(7, 3);
  ASSERT_THAT(faults, SizeIs(40));
  EXPECT_EQ(to_text(faults), to_text(drawn(7, 3)));
  EXPECT_NE(to_text(faults), to_text(drawn(8, 3)));
  EXPECT_EQ(to_text(parse_faults(to_text(faults))), to_text(faults))
      << "drawn faults can be written as text";
  std::set<FaultKind> kinds;
  std::set<int> ranks;
  std::set<Phase> phases;
  for (const Fault& fault : faults) {
    kinds.insert(fault.kind);
    ranks.insert(fault.rank);
    if (fault.kind == FaultKind::kill) phases.insert(fault.phase);
    EXPECT_TRUE(fault.step >= 2 && fault.step <= 200) << fault.text();
    EXPECT_NE(fault.rank, fault.peer);
    EXPECT_LT(fault.peer, 3);
  }
  EXPECT_THAT(kinds, SizeIs(6));
  EXPECT_THAT(ranks, SizeIs(3)) << "rank 0 too";
  EXPECT_GT(phases.size(), 2u);
}

TEST(FaultSchedule, AFaultIsDueForItsRankAtItsStepAndPhase) {
  const Fault kill = one("kill:rank=1@step=4,phase=backward");
  EXPECT_TRUE(is_due(kill, 1, Phase::backward, 4));
  EXPECT_FALSE(is_due(kill, 0, Phase::backward, 4));
  EXPECT_FALSE(is_due(kill, 1, Phase::backward, 3));
  EXPECT_FALSE(is_due(kill, 1, Phase::backward, 5));
  EXPECT_FALSE(is_due(kill, 1, Phase::forward, 4));
  EXPECT_TRUE(is_due(kill, 1, Phase::exchange, 4)) << "a replica without samples has no backward";
  EXPECT_FALSE(is_due(kill, 1, Phase::checkpoint, 4));
  EXPECT_FALSE(is_due(kill, 1, Phase::evaluate, 4));
}

TEST(FaultSchedule, AFaultOfTheCheckpointIsDueAtTheNextOne) {
  const Fault full = one("disk-full@step=90");
  EXPECT_FALSE(is_due(full, 0, Phase::checkpoint, 80));
  EXPECT_TRUE(is_due(full, 0, Phase::checkpoint, 90));
  EXPECT_TRUE(is_due(full, 0, Phase::checkpoint, 100));
  EXPECT_FALSE(is_due(full, 0, Phase::exchange, 90));
  EXPECT_TRUE(is_due(one("kill:rank=0@step=3,phase=checkpoint"), 0, Phase::checkpoint, 5));
}

TEST(FaultSchedule, ASlowRankIsSlowInEachStep) {
  const Fault slow = one("slow:rank=1,data=5ms@step=3");
  EXPECT_FALSE(is_due(slow, 1, Phase::data, 2));
  EXPECT_TRUE(is_due(slow, 1, Phase::data, 3));
  EXPECT_TRUE(is_due(slow, 1, Phase::data, 30));
  EXPECT_FALSE(is_due(slow, 1, Phase::forward, 3));
}

TEST(FaultSchedule, ARankIsSlowInAShareOfItsSteps) {
  const Fault slow = one("slow:rank=1,data=50ms,percent=5");
  EXPECT_EQ(one(slow.text()).text(), slow.text());
  int times = 0;
  for (int64_t step = 1; step <= 10000; ++step) {
    times += is_due(slow, 1, Phase::data, step);
    EXPECT_EQ(is_due(slow, 1, Phase::data, step), is_due(slow, 1, Phase::data, step));
    EXPECT_FALSE(is_due(slow, 0, Phase::data, step));
  }
  EXPECT_NEAR(times, 500, 100);
  EXPECT_THAT(refusal("slow:rank=1,data=50ms,percent=0"), HasSubstr("percent is '0'"));
}

TEST(FaultSchedule, ADroppedLinkIsDueAtBothEnds) {
  const Fault drop = one("drop:link=0-2@step=8");
  EXPECT_TRUE(is_due(drop, 0, Phase::exchange, 8));
  EXPECT_TRUE(is_due(drop, 2, Phase::exchange, 8));
  EXPECT_FALSE(is_due(drop, 1, Phase::exchange, 8));
}

}  // namespace
}  // namespace trireme::faults_test
