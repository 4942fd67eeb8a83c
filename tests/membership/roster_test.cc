#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/membership/roster.h>

namespace trireme::membership::roster_test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Time = Roster::Time;
using Decisions = Roster::Decisions;

constexpr Time kStart{};

RosterOptions options_for(int minimum, int maximum, int target) {
  return {.minimum = minimum,
          .maximum = maximum,
          .target = target,
          .first_timeout = 60s,
          .regroup_timeout = 10s,
          .refill_timeout = 60s};
}
std::vector<int64_t> members(const Decisions& decisions) {
  return decisions.formed.size() == 1 ? decisions.formed[0].members : std::vector<int64_t>{};
}
// Processes 0 to n-1 at work in generation 0.
Roster at_work(int n, RosterOptions options) {
  options.target = n;
  Roster roster(options);
  for (int process = 0; process < n; ++process) roster.arrive(process, -1, kStart);
  EXPECT_EQ(roster.generation(), 0);
  return roster;
}
Roster at_work(int n) { return at_work(n, options_for(1, n, n)); }

TEST(Roster, TheFirstGenerationWaitsForAllThatAreWanted) {
  Roster roster(options_for(1, 3, 3));
  EXPECT_TRUE(roster.arrive(7, -1, kStart).empty());
  EXPECT_TRUE(roster.arrive(4, -1, kStart).empty());
  const Decisions decisions = roster.arrive(9, -1, kStart);
  EXPECT_THAT(members(decisions), ElementsAre(4, 7, 9));  // By their numbers.
  EXPECT_EQ(decisions.formed[0].number, 0);
  EXPECT_EQ(decisions.formed[0].step, -1);
}

TEST(Roster, TheFirstGenerationFormsWithFewerWhenItsTimeIsOver) {
  Roster roster(options_for(1, 3, 3));
  roster.arrive(0, -1, kStart);
  roster.arrive(1, -1, kStart + 30s);
  EXPECT_TRUE(roster.tick(kStart + 59s).empty());
  EXPECT_THAT(members(roster.tick(kStart + 60s)), ElementsAre(0, 1));
}

TEST(Roster, TheFirstGenerationFailsWithFewerThanTheMinimum) {
  Roster roster(options_for(2, 3, 3));
  roster.arrive(0, -1, kStart);
  EXPECT_EQ(roster.tick(kStart + 60s).failure, "1 of at least 2 processes are there");
}

TEST(Roster, NoMoreThanTheMaximumAreEverWanted) {
  Roster roster(options_for(2, 3, 9));
  EXPECT_EQ(roster.target(), 3);
  roster.resize(1, kStart);
  EXPECT_EQ(roster.target(), 2);
}

TEST(Roster, WorkerZeroHasTheNewestState) {
  Roster roster = at_work(3);
  roster.arrive(0, 10, kStart);
  roster.arrive(1, 10, kStart);
  const Decisions decisions = roster.arrive(2, 11, kStart);
  EXPECT_THAT(members(decisions), ElementsAre(2, 0, 1));
  EXPECT_EQ(decisions.formed[0].step, 11);
}

TEST(Roster, MembersOfTheSameStepKeepTheirOrderAndNewcomersComeLast) {
  Roster roster = at_work(3, options_for(1, 4, 3));
  roster.lost(0, kStart);
  roster.arrive(30, -1, kStart);
  roster.arrive(2, 5, kStart);
  EXPECT_THAT(members(roster.arrive(1, 5, kStart)), ElementsAre(1, 2, 30));
}

TEST(Roster, AfterAMemberIsLostAGenerationFormsOnceAllOthersHaveCome) {
  Roster roster = at_work(3);
  EXPECT_TRUE(roster.lost(1, kStart).empty());
  EXPECT_TRUE(roster.arrive(0, 4, kStart).empty());
  const Decisions decisions = roster.arrive(2, 4, kStart);
  EXPECT_THAT(members(decisions), ElementsAre(0, 2));
  EXPECT_EQ(decisions.formed[0].number, 1);
}

TEST(Roster, AGenerationFormsAtOnceWhenTheMissingMemberIsLost) {
  Roster roster = at_work(2);
  EXPECT_TRUE(roster.arrive(0, 4, kStart).empty());
  EXPECT_THAT(members(roster.lost(1, kStart)), ElementsAre(0));
}

TEST(Roster, AMemberThatDoesNotComeToTheRegroupingIsLost) {
  Roster roster = at_work(2);
  roster.arrive(0, 4, kStart);
  EXPECT_TRUE(roster.tick(kStart + 9s).empty());
  const Decisions decisions = roster.tick(kStart + 10s);
  EXPECT_THAT(decisions.missed, ElementsAre(1));
  EXPECT_THAT(members(decisions), ElementsAre(0));
}

TEST(Roster, TheTimeToComeBeginsAnewWhenAllThatHadComeAreLost) {
  Roster roster = at_work(3);
  roster.arrive(0, 4, kStart);
  roster.lost(0, kStart + 9s);
  EXPECT_TRUE(roster.tick(kStart + 20s).empty());  // No process waits.
  EXPECT_TRUE(roster.arrive(1, 4, kStart + 25s).empty());
  EXPECT_TRUE(roster.tick(kStart + 34s).empty());
  EXPECT_THAT(roster.tick(kStart + 35s).missed, ElementsAre(2));
}

TEST(Roster, TooFewProcessesWaitForMoreOnceNoMemberIsAtWork) {
  Roster roster =
      at_work(3, {.minimum = 3, .maximum = 3, .regroup_timeout = 60s, .refill_timeout = 60s});
  roster.lost(0, kStart);
  roster.arrive(1, 4, kStart);
  EXPECT_THAT(roster.tick(kStart + 60s).missed, ElementsAre(2));
  EXPECT_TRUE(roster.tick(kStart + 119s).empty());
  roster.arrive(30, -1, kStart + 119s);
  EXPECT_THAT(members(roster.arrive(31, -1, kStart + 119s)), ElementsAre(1, 30, 31));
}

TEST(Roster, AFailureIsToldToLaterProcesses) {
  Roster roster = at_work(2, options_for(2, 2, 2));
  roster.lost(0, kStart);
  roster.arrive(1, 4, kStart);
  EXPECT_THAT(roster.tick(kStart + 60s).failure, HasSubstr("1 of at least 2"));
  EXPECT_THAT(roster.arrive(30, -1, kStart + 61s).failure, HasSubstr("1 of at least 2"));
}

TEST(Roster, ANewcomerThatIsWantedAsksTheOthersOnceToEndTheirStep) {
  Roster roster = at_work(3);
  roster.lost(2, kStart);
  roster.arrive(0, 4, kStart);
  roster.arrive(1, 4, kStart);
  EXPECT_THAT(roster.arrive(30, -1, kStart).interrupt, ElementsAre(0, 1));
  EXPECT_TRUE(roster.is_interrupted());
  EXPECT_TRUE(roster.tick(kStart).empty());
  EXPECT_TRUE(roster.arrive(0, 9, kStart).empty());
  EXPECT_THAT(members(roster.arrive(1, 9, kStart)), ElementsAre(0, 1, 30));
  EXPECT_FALSE(roster.is_interrupted());
}

TEST(Roster, AnInterruptedGenerationMayTakeItsTimeForTheStep) {
  Roster roster = at_work(2, options_for(1, 3, 2));
  roster.resize(3, kStart);
  roster.arrive(30, -1, kStart);
  EXPECT_TRUE(roster.tick(kStart + 3600s).empty());
  EXPECT_TRUE(roster.is_member(0));
}

TEST(Roster, ASpareWaitsUntilAMemberIsLost) {
  Roster roster = at_work(2, options_for(1, 3, 2));
  EXPECT_TRUE(roster.arrive(30, -1, kStart).empty());
  EXPECT_TRUE(roster.tick(kStart + 3600s).empty());
  roster.lost(0, kStart + 3600s);
  EXPECT_THAT(members(roster.arrive(1, 8, kStart + 3600s)), ElementsAre(1, 30));
}

TEST(Roster, TheLastWorkersAreDismissedWhenFewerAreWanted) {
  Roster roster = at_work(3);
  EXPECT_THAT(roster.resize(1, kStart).interrupt, ElementsAre(0, 1, 2));
  roster.arrive(2, 4, kStart);
  roster.arrive(0, 4, kStart);
  const Decisions decisions = roster.arrive(1, 4, kStart);
  EXPECT_THAT(members(decisions), ElementsAre(0));
  EXPECT_THAT(decisions.dismissed, ElementsAre(2, 1));
  EXPECT_TRUE(roster.lost(2, kStart).empty());  // The end of a dismissed process changes nothing.
}

TEST(Roster, AfterAGoodbyeNoNewcomerIsAdmittedAndFewerThanTheMinimumContinue) {
  Roster roster = at_work(3, options_for(3, 3, 3));
  roster.left(0, kStart);
  EXPECT_THAT(roster.arrive(30, -1, kStart).dismissed, ElementsAre(30));
  roster.lost(1, kStart);
  EXPECT_THAT(members(roster.arrive(2, 4, kStart)), ElementsAre(2));
}

TEST(Roster, AProcessThatWasLostWronglyMayComeAgain) {
  Roster roster = at_work(2);
  roster.lost(1, kStart);
  roster.arrive(1, 4, kStart);
  EXPECT_THAT(members(roster.arrive(0, 3, kStart)), ElementsAre(1, 0));
}

TEST(Roster, AProcessThatComesAfterTheOthersContinuedIsANewcomer) {
  Roster roster = at_work(2);
  roster.lost(0, kStart);
  EXPECT_THAT(members(roster.arrive(1, 4, kStart)), ElementsAre(1));
  EXPECT_THAT(roster.arrive(0, 3, kStart).interrupt, ElementsAre(1));
  EXPECT_THAT(members(roster.arrive(1, 6, kStart)), ElementsAre(1, 0));
}

TEST(Roster, AnUnknownOrLostProcessCannotBeLost) {
  Roster roster = at_work(2);
  EXPECT_TRUE(roster.lost(99, kStart).empty());
  roster.lost(0, kStart);
  EXPECT_TRUE(roster.lost(0, kStart).empty());
  EXPECT_TRUE(roster.left(99, kStart).empty());
}

TEST(Roster, ATakeOverContinuesWithAllMembersThatCome) {
  Roster roster(options_for(1, 3, 3), 4, {10, 11, 12});
  roster.arrive(12, 7, kStart);
  roster.arrive(10, 6, kStart);
  const Decisions decisions = roster.arrive(11, 7, kStart);
  EXPECT_THAT(members(decisions), ElementsAre(11, 12, 10));
  EXPECT_EQ(decisions.formed[0].number, 5);
}

TEST(Roster, ATakeOverContinuesWithoutMembersThatAreKnownToBeGone) {
  Roster roster(options_for(1, 3, 3), 4, {10, 11, 12});
  roster.arrive(12, 7, kStart);
  EXPECT_TRUE(roster.lost(10, kStart).empty());
  EXPECT_THAT(members(roster.lost(11, kStart)), ElementsAre(12));
}

TEST(Roster, ATakeOverFailsWhenAMemberNeitherComesNorEnds) {
  Roster roster(options_for(1, 3, 3), 4, {10, 11, 12});
  roster.arrive(10, 7, kStart);
  EXPECT_TRUE(roster.arrive(11, 7, kStart).empty());  // Even most of the members are not enough.
  EXPECT_TRUE(roster.tick(kStart + 9s).empty());
  EXPECT_THAT(roster.tick(kStart + 10s).failure,
              HasSubstr("1 of its workers neither came nor ended"));
}

TEST(Roster, AfterATakeOverASilentMemberIsLostAsUsual) {
  Roster roster(options_for(1, 2, 2), 4, {10, 11});
  roster.arrive(10, 7, kStart);
  roster.arrive(11, 7, kStart);
  roster.arrive(10, 8, kStart + 1s);
  EXPECT_THAT(members(roster.tick(kStart + 11s)), ElementsAre(10));
}

TEST(Roster, NoGenerationFormsAfterAFailureFromOutside) {
  Roster roster = at_work(1);
  EXPECT_EQ(roster.fail("the same step").failure, "the same step");
  EXPECT_EQ(roster.arrive(0, 4, kStart).failure, "the same step");
  EXPECT_EQ(roster.generation(), 0);
}

// Units of 2 (2 stages): worker 2 u + p is the process 2 u + p.
RosterOptions in_units_of(int unit, int minimum, int maximum) {
  RosterOptions options = options_for(minimum, maximum, maximum);
  options.unit = unit;
  return options;
}

TEST(RosterUnits, ANewcomerFillsTheHoleAndTheOthersKeepTheirNumbers) {
  Roster roster = at_work(4, in_units_of(2, 4, 4));
  roster.lost(2, kStart);
  roster.arrive(30, -1, kStart);
  roster.arrive(3, 6, kStart);
  roster.arrive(0, 5, kStart);
  const Decisions decisions = roster.arrive(1, 5, kStart);
  EXPECT_THAT(members(decisions), ElementsAre(0, 1, 30, 3));
  EXPECT_EQ(decisions.formed[0].step, 6);
  EXPECT_THAT(decisions.formed[0].steps, ElementsAre(5, 5, -1, 6));
}

TEST(RosterUnits, WholeUnitsContinueWhileTheOthersOfAnIncompleteOneWait) {
  Roster roster = at_work(4, in_units_of(2, 2, 4));
  roster.lost(0, kStart);
  roster.arrive(1, 5, kStart);
  roster.arrive(2, 5, kStart);
  EXPECT_THAT(members(roster.arrive(3, 5, kStart)), ElementsAre(2, 3));
  EXPECT_TRUE(roster.is_waiting(1));
  // Its place comes back with the replacement.
  EXPECT_THAT(roster.arrive(30, -1, kStart).interrupt, ElementsAre(2, 3));
  roster.arrive(2, 9, kStart);
  EXPECT_THAT(members(roster.arrive(3, 9, kStart)), ElementsAre(2, 3, 30, 1));
}

TEST(RosterUnits, ASpareFillsAHoleOfAnotherUnit) {
  Roster roster = at_work(6, in_units_of(2, 2, 6));
  roster.lost(5, kStart);
  for (const int64_t process : {0, 1, 2, 3, 4}) roster.arrive(process, 5, kStart);
  EXPECT_TRUE(roster.is_waiting(4));
  EXPECT_TRUE(roster.lost(1, kStart).empty());
  for (const int64_t process : {0, 2}) roster.arrive(process, 7, kStart);
  EXPECT_THAT(members(roster.arrive(3, 7, kStart)), ElementsAre(0, 4, 2, 3));
}

TEST(RosterUnits, ASpareOfTheSamePositionGoesFirst) {
  Roster roster = at_work(6, in_units_of(2, 2, 6));
  roster.arrive(30, -1, kStart);
  roster.lost(4, kStart);
  for (const int64_t process : {0, 1, 2, 3}) roster.arrive(process, 5, kStart);
  EXPECT_THAT(members(roster.arrive(5, 5, kStart)), ElementsAre(0, 1, 2, 3, 30, 5));
  roster.lost(30, kStart);
  for (const int64_t process : {0, 1, 2, 3, 5}) roster.arrive(process, 6, kStart);
  roster.lost(3, kStart);
  roster.arrive(31, 99, kStart);
  for (const int64_t process : {0, 1}) roster.arrive(process, 7, kStart);
  EXPECT_THAT(members(roster.arrive(2, 7, kStart)), ElementsAre(0, 1, 2, 5));
}

TEST(RosterUnits, TheStateOfASpareIsOldOnceAGenerationFormedWithoutIt) {
  Roster roster = at_work(4, in_units_of(2, 2, 4));
  roster.lost(3, kStart);
  roster.arrive(2, 6, kStart);
  roster.arrive(0, 5, kStart);
  EXPECT_EQ(roster.arrive(1, 5, kStart).formed.at(0).step, 5);  // They compute step 6 anew.
  roster.arrive(30, -1, kStart);
  roster.arrive(0, 5, kStart);
  const Decisions decisions = roster.arrive(1, 5, kStart);
  EXPECT_THAT(members(decisions), ElementsAre(0, 1, 2, 30));
  EXPECT_EQ(decisions.formed[0].step, 5);
  EXPECT_THAT(decisions.formed[0].steps, ElementsAre(5, 5, -1, -1));
}

TEST(RosterUnits, TheStateOfAnotherPositionDoesNotCount) {
  Roster roster = at_work(4, in_units_of(2, 2, 4));
  roster.lost(1, kStart);
  roster.lost(3, kStart);
  roster.arrive(0, 5, kStart);
  const Decisions decisions = roster.arrive(2, 5, kStart);
  EXPECT_THAT(members(decisions), ElementsAre(0, 2));
  EXPECT_THAT(decisions.formed[0].steps, ElementsAre(5, -1));
}

TEST(RosterUnits, TheRestIsSentHomeIfAWholeUnitIsDone) {
  Roster roster = at_work(4, in_units_of(2, 2, 4));
  roster.left(0, kStart);
  roster.left(1, kStart);
  roster.lost(2, kStart);
  const Decisions decisions = roster.arrive(3, 5, kStart);
  EXPECT_THAT(decisions.dismissed, ElementsAre(3));
  EXPECT_EQ(decisions.failure, "");
}

TEST(RosterUnits, UnitsThatAreLostTogetherAreReplacedAsAWhole) {
  Roster roster = at_work(8, in_units_of(4, 4, 8));
  for (const int64_t process : {0, 1, 2, 3}) roster.lost(process, kStart);
  for (const int64_t process : {4, 5, 6}) roster.arrive(process, 5, kStart);
  EXPECT_THAT(members(roster.arrive(7, 5, kStart)), ElementsAre(4, 5, 6, 7));
  for (const int64_t process : {30, 31, 32})
    EXPECT_TRUE(roster.arrive(process, -1, kStart).empty());
  EXPECT_THAT(roster.arrive(33, -1, kStart).interrupt, ElementsAre(4, 5, 6, 7));
}

TEST(RosterUnits, TwoIncompleteUnitsBecomeOne) {
  Roster roster = at_work(4, in_units_of(2, 2, 4));
  roster.lost(0, kStart);
  roster.lost(3, kStart);
  roster.arrive(1, 5, kStart);
  EXPECT_THAT(members(roster.arrive(2, 5, kStart)), ElementsAre(2, 1));
}

TEST(RosterUnits, ANewcomerIsWaitedForWhenTooFewUnitsAreWhole) {
  Roster roster = at_work(4, in_units_of(2, 4, 4));
  roster.lost(0, kStart);
  for (const int64_t process : {1, 2, 3}) EXPECT_TRUE(roster.arrive(process, 5, kStart).empty());
  EXPECT_TRUE(roster.tick(kStart + 59s).empty());
  EXPECT_THAT(roster.tick(kStart + 60s).failure, HasSubstr("3 of at least 4"));
}

TEST(RosterUnits, AUnitThatCannotBeFilledAtTheEndOfTheJobFails) {
  RosterOptions options = in_units_of(2, 2, 2);
  options.shape = "2 stages";
  Roster roster = at_work(2, options);
  roster.finish(kStart);
  roster.lost(0, kStart);
  EXPECT_EQ(roster.arrive(1, 5, kStart).failure,
            "1 of the 2 processes of a unit (2 stages) are there, and the job is about to end");
}

TEST(RosterUnits, FewerUnitsDismissWholeUnits) {
  Roster roster = at_work(6, in_units_of(2, 2, 6));
  roster.resize(3, kStart);
  EXPECT_EQ(roster.target(), 2);
  for (const int64_t process : {0, 1, 2, 3, 4}) roster.arrive(process, 5, kStart);
  const Decisions decisions = roster.arrive(5, 5, kStart);
  EXPECT_THAT(members(decisions), ElementsAre(0, 1));
  EXPECT_THAT(decisions.dismissed, ElementsAre(5, 4, 3, 2));
}

TEST(RosterUnits, NumbersThatAreNoMultiplesAreRefused) {
  RosterOptions options = in_units_of(4, 3, 8);
  options.shape = "2 stages x 2 replicas";
  try {
    Roster roster(options);
    FAIL() << "a minimum of 3 was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the minimum of 3 workers is not a multiple of the unit "
                                        "of 4 (2 stages x 2 replicas)"));
    EXPECT_THAT(error.what(), HasSubstr("try: 4"));
  }
  EXPECT_THROW(Roster(in_units_of(0, 1, 1)), Error);
  EXPECT_THROW(Roster(in_units_of(2, 2, 5)), Error);
}

RosterOptions by_claim(int minimum, int maximum) {
  RosterOptions options = options_for(minimum, maximum, maximum);
  options.by_claim = true;
  return options;
}

TEST(Roster, TheHolderOfTheClaimContinuesWithFewMembers) {
  Roster roster(by_claim(1, 4), 4, {10, 11, 12, 13});
  roster.arrive(13, 7, kStart);
  EXPECT_TRUE(roster.claimed(kStart + 20s, kStart).empty());  // The others may still come.
  EXPECT_THAT(members(roster.tick(kStart + 10s)), ElementsAre(13));
}

TEST(Roster, WithoutTheClaimNoGenerationFormsHoweverManyCome) {
  Roster roster(by_claim(1, 2), 4, {10, 11});
  roster.arrive(10, 7, kStart);
  EXPECT_TRUE(roster.arrive(11, 7, kStart).empty());
  EXPECT_THAT(members(roster.claimed(kStart + 5s, kStart)), ElementsAre(10, 11));
}

TEST(Roster, AClaimThatWasNotRenewedInTimeNoLongerCounts) {
  Roster roster(by_claim(1, 2));
  roster.claimed(kStart + 4s, kStart);
  roster.arrive(0, -1, kStart);
  EXPECT_THAT(members(roster.arrive(1, -1, kStart)), ElementsAre(0, 1));
  roster.lost(1, kStart + 4s);
  EXPECT_TRUE(roster.arrive(0, 5, kStart + 4s).empty());
  EXPECT_THAT(members(roster.claimed(kStart + 9s, kStart + 5s)), ElementsAre(0));
}

TEST(Roster, ARosterThatNeverGetsTheClaimFails) {
  Roster roster(by_claim(1, 2), 4, {10, 11});
  roster.arrive(10, 7, kStart);
  roster.arrive(11, 7, kStart);
  EXPECT_THAT(roster.tick(kStart + 60s).failure,
              HasSubstr("does not hold the job's name in etcd"));
}

}  // namespace
}  // namespace trireme::membership::roster_test
