#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/membership/generations.h>
#include <trireme/membership/identity.h>

namespace trireme::membership::generations_test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Time = Roster::Time;

constexpr Time kStart{};

// Generations whose actions are recorded. Process p speaks on connection 100 + p.
struct Recorded {
  explicit Recorded(int minimum, int maximum, int target)
      : generations(
            {.minimum = minimum, .maximum = maximum, .target = target},
            {.answer = [this](
                           net::ConnectionId to,
                           const Json& message) { answers[static_cast<int>(to) - 100] = message; },
             .close =
                 [this](net::ConnectionId which) {
                   closed.push_back(static_cast<int>(which) - 100);
                 },
             .start = [this](int number, int workers) { started.emplace_back(number, workers); },
             .lose = [this](int worker,
                            const std::string& reason) { given_up.emplace_back(worker, reason); },
             .interrupt = [this] { ++interrupts; },
             .rules = [] { return Former{.coordinator = {"127.0.0.1", 29500}}; },
             .is_own = [this](Roster::Process process) { return own.contains(process); }}) {}

  // The process arrives with these facts.
  void arrive(int process, const std::string& rate, Time now) {
    generations.arrive(static_cast<net::ConnectionId>(100 + process),
                       {{"process", process},
                        {"step", -1},
                        {"reason", ""},
                        {"standby", "127.0.0.1:29501"},
                        {"host", "b"},
                        {"pid", 4700 + process},
                        {"facts", {{"optimizer.lr", rate}, {"seed", "1"}}}},
                       now);
  }
  void arrive(int process, int64_t step, Time now, const std::string& reason = "") {
    generations.arrive(
        static_cast<net::ConnectionId>(100 + process),
        {{"process", process}, {"step", step}, {"reason", reason}, {"standby", "127.0.0.1:29501"}},
        now);
  }
  void disconnect(int process, Time now) {
    generations.closed(static_cast<net::ConnectionId>(100 + process), now);
  }
  // Processes 0 to n-1 become workers 0 to n-1.
  void start(int n) {
    for (int process = 0; process < n; ++process) arrive(process, -1, kStart);
    generations.stepped(1, Json::object(), kStart + 1s);
  }
  const Json& last() const { return generations.history().back(); }

  std::set<Roster::Process> own;
  std::map<int, Json> answers;
  std::vector<int> closed;
  std::vector<std::pair<int, int>> started;
  std::vector<std::pair<int, std::string>> given_up;
  int interrupts = 0;
  Generations generations;
};

std::vector<int64_t> processes_of(const std::vector<LostProcess>& lost) {
  std::vector<int64_t> processes;
  for (const LostProcess& each : lost) processes.push_back(each.process);
  return processes;
}

TEST(Generations, EachProcessThatArrivesIsNotedAndLaterToldItsPlace) {
  Recorded job(1, 2, 2);
  job.arrive(0, -1, kStart);
  EXPECT_EQ(job.answers[0].at("op"), "noted");
  job.arrive(1, -1, kStart);
  const Former former = Former::from_json(job.answers[1].at("former"));
  EXPECT_EQ(former.generation, 0);
  EXPECT_EQ(former.members.size(), 2U);
  EXPECT_EQ(former.history, job.generations.history());
  job.answers[1].erase("former");
  EXPECT_EQ(job.answers[1], (Json{{"op", "formed"},
                                  {"number", 0},
                                  {"worker", 1},
                                  {"workers", 2},
                                  {"step", -1},
                                  {"cause", "start"}}));
  EXPECT_EQ(job.answers[0].at("worker"), 0);
  // Until the processes have joined, these connections tell if they end.
  EXPECT_TRUE(job.closed.empty());
  job.generations.joined(1);
  EXPECT_THAT(job.closed, ElementsAre(1));
  EXPECT_THAT(job.started, ElementsAre(std::pair(0, 2)));
}

TEST(Generations, ANewcomerThatDiffersFromTheJobIsTurnedAwayAlone) {
  Recorded job(1, 3, 3);
  for (int process = 0; process < 2; ++process) job.arrive(process, "0.1", kStart);
  job.generations.tick(kStart + 61s);  // The first generation forms without a third process.
  ASSERT_THAT(job.started, SizeIs(1));
  job.arrive(2, "0.2", kStart + 70s);
  EXPECT_EQ(job.answers[2].at("op"), "refused");
  EXPECT_THAT(
      job.answers[2].at("what").get<std::string>(),
      HasSubstr("optimizer.lr is '0.2' on this one and '0.1' on the process 4700 of host b"));
  EXPECT_THAT(job.closed, ElementsAre(2));
  EXPECT_EQ(job.interrupts, 0);
  EXPECT_THAT(job.started, SizeIs(1));
  job.disconnect(2, kStart + 71s);
  EXPECT_TRUE(job.generations.take_lost().empty());
  job.arrive(2, "0.1", kStart + 80s);
  EXPECT_EQ(job.answers[2].at("op"), "noted");
  EXPECT_EQ(job.interrupts, 1);
}

TEST(Generations, BeforeTheFirstGenerationAProcessOfTheOwnLauncherSetsTheTerms) {
  Recorded job(1, 2, 2);
  job.own = {1, 2};
  job.arrive(0, "0.2", kStart);
  EXPECT_EQ(job.answers[0].at("op"), "noted");
  job.arrive(1, "0.1", kStart);
  EXPECT_EQ(job.answers[0].at("op"), "refused");
  EXPECT_EQ(job.answers[1].at("op"), "noted");
  EXPECT_THAT(job.started, IsEmpty());
  job.arrive(2, "0.1", kStart);
  EXPECT_THAT(job.started, ElementsAre(std::pair(0, 2)));
}

TEST(Generations, AWorkerThatWaitsForAnotherToJoinHearsOfItsEnd) {
  Recorded job(1, 3, 3);
  job.start(3);
  job.generations.joined(0);
  job.disconnect(1, kStart + 2s);
  EXPECT_THAT(
      job.given_up,
      ElementsAre(std::pair(1, std::string("connection closed before it joined its generation"))));
}

TEST(Generations, TheHistoryBeginsWithTheStart) {
  Recorded job(1, 2, 2);
  job.start(2);
  EXPECT_EQ(job.generations.history(), Json::array({{{"generation", 0},
                                                     {"world_size", 2},
                                                     {"first_step", 1},
                                                     {"cause", "start"},
                                                     {"lost_ranks", Json::array()},
                                                     {"phase", ""},
                                                     {"seconds_to_first_step", 1.0},
                                                     {"batch", nullptr},
                                                     {"micro_batches", nullptr},
                                                     {"learning_rate_factor", nullptr}}}));
}

TEST(Generations, ALostWorkerIsTheCauseOfTheNextGenerationWithRankAndPhase) {
  Recorded job(1, 3, 3);
  job.start(3);
  job.generations.lost_worker(1, {Phase::backward, 7}, {.text = "worker 1 was lost: killed"},
                              kStart + 10s);
  job.arrive(0, 6, kStart + 10s, "worker 1 was lost");
  job.arrive(2, 6, kStart + 10s, "worker 1 was lost");
  job.generations.stepped(7, {{"batch", 64}, {"micro_batches", 1}, {"learning_rate_factor", 0.5}},
                          kStart + 12s);
  EXPECT_EQ(job.last(), (Json{{"generation", 1},
                              {"world_size", 2},
                              {"first_step", 7},
                              {"cause", "worker 1 was lost: killed"},
                              {"lost_ranks", {1}},
                              {"phase", "backward of step 7"},
                              {"seconds_to_first_step", 2.0},
                              {"batch", 64},
                              {"micro_batches", 1},
                              {"learning_rate_factor", 0.5}}));
  EXPECT_EQ(job.generations.last_phase(1)->describe(), "backward of step 7");
}

TEST(Generations, AllLostRanksAreListedAndTheFirstIsTheCause) {
  Recorded job(1, 3, 3);
  job.start(3);
  job.generations.lost_worker(2, {Phase::exchange, 4}, {.text = "first"}, kStart);
  job.generations.lost_worker(0, {Phase::data, 4}, {.text = "second"}, kStart);
  job.arrive(1, 3, kStart);
  EXPECT_EQ(job.last().at("lost_ranks"), Json({2, 0}));
  EXPECT_EQ(job.last().at("cause"), "first");
  EXPECT_EQ(job.last().at("phase"), "exchange of step 4");
}

TEST(Generations, AWorkerLostWhileANewcomerIsAdmittedIsTheCause) {
  Recorded job(1, 3, 3);
  job.start(2);
  job.generations.tick(kStart + 100s);
  ASSERT_EQ(job.generations.generation(), 0);
  job.arrive(30, -1, kStart + 101s);
  EXPECT_EQ(job.interrupts, 1);
  EXPECT_TRUE(job.generations.is_interrupted());
  job.generations.lost_worker(0, {}, {.text = "killed"}, kStart + 102s);
  job.arrive(1, 5, kStart + 102s);
  EXPECT_EQ(job.last().at("cause"), "killed");
  EXPECT_EQ(job.last().at("world_size"), 2);
}

TEST(Generations, TheTimeToTheFirstStepCountsFromTheCauseNotFromAWaitingSpare) {
  Recorded job(1, 3, 2);
  job.start(2);
  job.arrive(30, -1, kStart + 10s);
  job.arrive(0, 5, kStart + 50s, "a collective timed out");
  job.arrive(1, 5, kStart + 50s, "a collective timed out");
  job.generations.stepped(6, Json::object(), kStart + 51s);
  EXPECT_EQ(job.last().at("seconds_to_first_step"), 1.0);
}

TEST(Generations, AStepThatWasGivenUpIsTheCauseIfNoWorkerIsLost) {
  Recorded job(1, 2, 2);
  job.start(2);
  job.arrive(0, 5, kStart, "the exchange timed out");
  EXPECT_THAT(job.given_up,
              ElementsAre(std::pair(0, "it gave the step up: the exchange timed out")));
  EXPECT_TRUE(job.generations.is_waiting(0));
  job.arrive(1, 5, kStart, "worker 0 is lost");
  EXPECT_EQ(job.last().at("cause"), "worker 0 gave a step up: the exchange timed out");
  EXPECT_THAT(job.last().at("lost_ranks"), IsEmpty());
}

TEST(Generations, AWorkerLostWhileItWaitsIsALostRank) {
  Recorded job(1, 3, 3);
  job.start(3);
  job.arrive(2, 5, kStart);
  job.disconnect(2, kStart);
  EXPECT_THAT(processes_of(job.generations.take_lost()), ElementsAre(2));
  job.arrive(0, 5, kStart);
  job.arrive(1, 5, kStart);
  EXPECT_EQ(job.last().at("lost_ranks"), Json({2}));
}

TEST(Generations, ANewcomerLostWhileItWaitsIsNoLostRank) {
  Recorded job(1, 3, 2);
  job.start(2);
  job.arrive(30, -1, kStart);
  job.disconnect(30, kStart);
  EXPECT_THAT(processes_of(job.generations.take_lost()), ElementsAre(30));
  job.arrive(0, 5, kStart, "x");
  job.arrive(1, 5, kStart, "x");
  EXPECT_THAT(job.last().at("lost_ranks"), IsEmpty());
}

TEST(Generations, AMemberThatDoesNotComeIsALostRankAndMustBeEnded) {
  Recorded job(1, 2, 2);
  job.start(2);
  job.arrive(0, 5, kStart);
  job.generations.tick(kStart + 10s);
  EXPECT_THAT(processes_of(job.generations.take_lost()), ElementsAre(1));
  EXPECT_EQ(job.last().at("lost_ranks"), Json({1}));
  EXPECT_EQ(job.last().at("cause"), "it did not come to the regrouping");
}

TEST(Generations, ALostProcessIsReportedOnce) {
  Recorded job(1, 2, 2);
  job.start(2);
  job.generations.lost_worker(1, {}, {.text = "killed"}, kStart);
  job.generations.lost_worker(1, {}, {.text = "its connection broke"}, kStart);
  EXPECT_THAT(processes_of(job.generations.take_lost()), ElementsAre(1));
  EXPECT_THAT(job.generations.take_lost(), IsEmpty());
}

TEST(Generations, AProcessWhoseConnectionClosedMayBeEndingByItself) {
  Recorded job(1, 3, 3);
  job.start(3);
  job.arrive(2, 5, kStart);
  job.disconnect(2, kStart);
  job.generations.lost_worker(1, {}, {.text = "silent for 2 s"}, kStart);
  const std::vector<LostProcess> lost = job.generations.take_lost();
  ASSERT_THAT(lost, SizeIs(2));
  EXPECT_TRUE(lost[0].ending);
  EXPECT_FALSE(lost[1].ending);
  EXPECT_FALSE(job.generations.takes_part(2));
  EXPECT_TRUE(job.generations.takes_part(0));
}

TEST(Generations, AReplacementCausesTheNextGeneration) {
  Recorded job(1, 2, 2);
  job.start(2);
  job.generations.lost_worker(1, {}, {.text = "killed"}, kStart);
  job.arrive(0, 5, kStart);
  job.arrive(30, -1, kStart + 3s);
  EXPECT_EQ(job.interrupts, 1);
  job.arrive(0, 9, kStart + 4s);
  EXPECT_EQ(job.last().at("cause"), "a worker joined");
  EXPECT_EQ(job.last().at("first_step"), 10);
  EXPECT_EQ(job.answers[30].at("step"), 9);
  EXPECT_EQ(job.generations.worker_of(30), 1);
  EXPECT_FALSE(job.generations.worker_of(1));
  EXPECT_TRUE(job.generations.last_phase(1));
}

TEST(Generations, FewerWorkersAreDismissedAndKnownAsSuch) {
  Recorded job(1, 3, 3);
  job.start(3);
  EXPECT_THAT(job.generations.resize(4, kStart), HasSubstr("--elastic 1:3"));
  EXPECT_THAT(job.generations.resize(0, kStart), HasSubstr("0 workers were asked for"));
  EXPECT_EQ(job.generations.resize(2, kStart), "");
  for (int process = 0; process < 3; ++process) job.arrive(process, 5, kStart);
  EXPECT_EQ(job.answers[2].at("op"), "dismissed");
  EXPECT_TRUE(job.generations.was_dismissed(2));
  EXPECT_FALSE(job.generations.was_dismissed(0));
  EXPECT_EQ(job.last().at("cause"), "asked for fewer workers");
  EXPECT_THAT(job.generations.take_lost(), IsEmpty());
}

TEST(Generations, AFailureIsToldToWaitingAndLaterProcesses) {
  Recorded job(2, 2, 2);
  job.start(2);
  job.generations.lost_worker(0, {}, {.text = "killed"}, kStart);
  job.arrive(1, 5, kStart);
  job.generations.tick(kStart + 60s);
  EXPECT_EQ(job.answers[1].at("op"), "failed");
  ASSERT_TRUE(job.generations.failure());
  EXPECT_THAT(job.generations.failure()->what, HasSubstr("1 of at least 2"));
  EXPECT_EQ(exit_code_of(job.generations.failure()->error()), kExitRetry);
  job.arrive(30, -1, kStart + 61s);
  EXPECT_EQ(job.answers[30].at("op"), "failed");
}

// Two workers, one of which dies in each generation.
struct Repeated : Recorded {
  Repeated() : Recorded(1, 2, 2) { start(2); }
  // The process dies in `step`, and its launcher tells how. The other one has `newest` steps.
  void die(int process, int64_t step, int64_t newest, const std::string& how) {
    const int worker = generations.worker_of(process).value();
    generations.lost_worker(worker, {Phase::backward, step},
                            {.text = "its connection closed", .reason = "connection closed"},
                            kStart);
    generations.process_ended(process, how, kStart);
    regroup(newest, "lost");
  }
  void replace() { arrive(next++, -1, kStart); }
  void regroup(int64_t newest, const std::string& reason = "") {
    std::vector<int> members;
    for (int process = 0; process < next; ++process)
      if (generations.worker_of(process)) members.push_back(process);
    for (const int member : members) arrive(member, newest, kStart, reason);
  }
  int next = 2;
};

TEST(Generations, AStepThatLosesAWorkerEachTimeEndsTheJob) {
  Repeated job;
  for (int i = 0; i < UnfinishedSteps::kMostTimes - 1; ++i) {
    job.die(job.next - 1, 7, 6, "killed by signal 11 (SIGSEGV)");
    job.replace();
    job.regroup(6);
    ASSERT_FALSE(job.generations.failure()) << i;
  }
  job.die(job.next - 1, 7, 6, "killed by signal 11 (SIGSEGV)");
  ASSERT_TRUE(job.generations.failure());
  EXPECT_EQ(exit_code_of(job.generations.failure()->error()), kExitFailed);
  for (const char* part : {"step 7 is never finished", "5 times", "worker 1 in backward of step 7",
                           "killed by signal 11 (SIGSEGV)"})
    EXPECT_THAT(job.generations.failure()->what, HasSubstr(part));
  EXPECT_EQ(job.answers[0].at("op"), "failed");
  EXPECT_EQ(job.answers[0].at("error"), "internal");
  job.replace();
  EXPECT_EQ(job.answers[job.next - 1].at("op"), "failed");
}

TEST(Generations, WorkersLostInDifferentStepsDoNotEndTheJob) {
  Repeated job;
  for (int i = 0; i < 4 * UnfinishedSteps::kMostTimes; ++i) {
    job.die(job.next - 1, 7 + i, 6 + i, "killed by signal 9 (SIGKILL)");
    job.replace();
    job.regroup(6 + i);
    ASSERT_FALSE(job.generations.failure()) << i;
  }
}

// All workers die in the step, whichever rank has its data. New ones come to it from a checkpoint.
TEST(Generations, AStepThatLosesAllWorkersIsCountedAcrossTheCheckpoint) {
  Recorded job(1, 1, 1);
  job.start(1);
  int process = 0;
  for (int i = 0; i < UnfinishedSteps::kMostTimes; ++i) {
    ASSERT_FALSE(job.generations.failure()) << i;
    job.generations.lost_worker(0, {Phase::forward, 7}, {.text = "killed", .reason = "killed"},
                                kStart);
    job.arrive(++process, -1, kStart);
  }
  ASSERT_TRUE(job.generations.failure());
  EXPECT_THAT(job.generations.failure()->what, HasSubstr("worker 0 in forward of step 7: killed"));
}

TEST(Generations, SeveralWorkersLostAtOnceCountOnce) {
  constexpr int kMany = 2 * UnfinishedSteps::kMostTimes;
  Recorded job(1, kMany, kMany);
  job.start(kMany);
  for (int worker = 1; worker < kMany; ++worker)
    job.generations.lost_worker(worker, {Phase::forward, 7}, {.text = "its host"}, kStart);
  job.arrive(0, 6, kStart);
  EXPECT_FALSE(job.generations.failure());
  EXPECT_EQ(job.generations.generation(), 1);
}

TEST(UnfinishedSteps, TellAnEarlierEndWhileTheLastOneIsNotSeen) {
  const std::string where = "worker 0 in backward of step 7";
  UnfinishedSteps steps;
  for (int process = 1; process < UnfinishedSteps::kMostTimes; ++process)
    steps.lost(7, process, where, "killed by signal 9 (SIGKILL)", true);
  steps.lost(7, 99, where, "connection reset", false);
  EXPECT_THAT(steps.verdict(), EndsWith("the last time " + where +
                                        ": connection reset (an "
                                        "earlier time: killed by signal 9 (SIGKILL))"));
  steps.ended(99, "exit code 1");
  EXPECT_THAT(steps.verdict(), EndsWith(where + ": exit code 1"));
}

// Each worker's connection ends before its launcher sees its end, but the last end is never seen.
TEST(Generations, TheVerdictOnAStepHasAnEndThatALauncherSaw) {
  Recorded job(2, 2, 2);
  job.start(2);
  int64_t lost = 1;
  for (int i = 0; i < UnfinishedSteps::kMostTimes; ++i) {
    job.generations.lost_worker(1, {Phase::backward, 7},
                                {.text = "gone", .reason = "connection reset", .ending = true},
                                kStart);
    if (i + 1 < UnfinishedSteps::kMostTimes)
      job.generations.process_ended(lost, "killed by signal 9", kStart);
    job.arrive(0, 6, kStart);
    job.arrive(lost = 10 + i, -1, kStart);
  }
  ASSERT_TRUE(job.generations.failure());
  EXPECT_THAT(job.generations.failure()->what,
              HasSubstr("connection reset (an earlier time: killed by signal 9)"));
}

TEST(UnfinishedSteps, TravelToTheNextCoordinator) {
  UnfinishedSteps steps;
  for (int i = 0; i < UnfinishedSteps::kMostTimes - 1; ++i)
    steps.lost(7, i, "worker 1 in data of step 7", "killed", true);
  UnfinishedSteps there = UnfinishedSteps::from_json(steps.to_json());
  EXPECT_EQ(there.verdict(), "");
  there.lost(7, 99, "worker 1 in data of step 7", "connection closed", false);
  EXPECT_THAT(there.verdict(), HasSubstr("connection closed (an earlier time: killed)"));
  there.committed(7);
  EXPECT_EQ(there.verdict(), "");
}

std::string refusal_of(const std::string& text) {
  try {
    parse_elastic(text, "--elastic");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "not refused";
}

TEST(ParseElastic, TakesTwoNumbers) {
  const Elastic elastic = parse_elastic("2:16", "--elastic");
  EXPECT_EQ(elastic.minimum, 2);
  EXPECT_EQ(elastic.maximum, 16);
  EXPECT_EQ(parse_elastic("3:3", "--elastic").minimum, 3);
}

TEST(ParseElastic, RefusesAllElseSayingWhy) {
  for (const char* text :
       {"", ":", "3", "1:", ":3", "1:2:3", "1 :3", "1: 3", "a:b", "1:3x", "1-3", "0x1:3"})
    EXPECT_THAT(refusal_of(text), HasSubstr("not two numbers with a colon between them")) << text;
  EXPECT_THAT(refusal_of("0:3"), HasSubstr("at least 1 worker"));
  EXPECT_THAT(refusal_of("-1:3"), HasSubstr("at least 1 worker"));
  EXPECT_THAT(refusal_of("4:3"), HasSubstr("the maximum is below the minimum"));
  EXPECT_THAT(refusal_of("1:2000000"), HasSubstr("more than 1048576 workers"));
  EXPECT_THAT(refusal_of("1:99999999999999999999"),
              HasSubstr("--elastic is '1:99999999999999999999'"));
}

}  // namespace
}  // namespace trireme::membership::generations_test
