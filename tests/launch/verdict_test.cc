#include <trireme/launch/verdict.h>

#include <gmock/gmock.h>

#include <trireme/base/error.h>
#include <csignal>
#include <string>
#include <vector>

namespace trireme::launch::verdict_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

WorkerEnd exited(int worker, int code, int at_ms = 0) {
  return {.worker = worker,
          .pid = 100 + worker,
          .host = "a",
          .end = {false, code},
          .at = std::chrono::milliseconds(at_ms)};
}
WorkerEnd killed(int worker, int signal, int at_ms = 0) {
  WorkerEnd end = exited(worker, 0, at_ms);
  end.end = {true, signal};
  return end;
}
WorkerEnd after_signal(int signal_sent, WorkerEnd end) {
  end.signal_sent = signal_sent;
  return end;
}
WorkerEnd in_phase(Phase phase, int64_t step, WorkerEnd end) {
  end.last = {phase, step};
  return end;
}
WorkerEnd after_goodbye(WorkerEnd end) {
  end.said_goodbye = true;
  return end;
}
membership::LostWorker lost(int worker, const std::string& reason = "connection closed") {
  return {.worker = worker,
          .host = "b",
          .pid = 200 + worker,
          .last = {Phase::exchange, 12},
          .reason = reason};
}

struct Row {
  const char* fact;
  JobEnd job;
  int exit_code;
  const char* text;  // A part of the text; nullptr: the text is empty.
};

const membership::Failure kTooFew{ErrorCode::peer_lost, "1 of at least 2 processes are there",
                                  "again"};
const membership::Failure kUnfinished{ErrorCode::internal, "step 7 is never finished", "mend it"};

// Job ends are {workers, stop_signal, any_step_finished, lost, failure, members_were_stopped}.
std::vector<Row> rows() {
  return {
      {"all workers succeeded", {{exited(0, 0), exited(1, 0)}}, 0, nullptr},
      {"no worker of this host is left, and those of other hosts have finished", {}, 0, nullptr},
      {"all ended with 0 though one left without goodbye",
       {{exited(0, 0), exited(1, 0)}, 0, true, lost(0)},
       0,
       nullptr},
      {"a worker's 1 becomes the job's",
       {{exited(0, 0), exited(1, 1)}},
       1,
       "worker 1 (pid 101, host a) failed with exit code 1;"},
      {"a worker's 2 becomes the job's", {{exited(0, 2), exited(1, 2)}}, 2, "worker 0"},
      {"any other code becomes the job's",
       {{exited(0, 42)}},
       42,
       "exit code 42; job ends with 42"},
      {"a code from 128 on becomes the job's too",
       {{exited(0, 137)}},
       137,
       "exit code 137; job ends with 137 (try again"},
      {"the phase is named",
       {{in_phase(Phase::backward, 40, killed(1, SIGKILL, 10)), exited(0, 138, 20)}, 0, true},
       138,
       "worker 1 (pid 101, host a) was killed by signal 9 (SIGKILL) in backward of step 40; job "
       "ends with 138 "
       "(try again: the job can be restarted)"},
      {"a lost worker seen by others is not the cause, in any order",
       {{exited(0, 138, 5), killed(1, SIGKILL, 10)}, 0, true},
       138,
       "worker 1"},
      {"a failure much later than the 138 is still the cause",
       {{exited(0, 138, 5), exited(1, 1, 5000)}, 0, true},
       1,
       "worker 1"},
      {"without any other failure the 138 is the cause",
       {{exited(0, 138, 5), exited(1, 138, 6)}, 0, true},
       138,
       "worker 0"},
      {"a worker that the supervisor terminated is not the cause",
       {{after_signal(SIGTERM, killed(0, SIGTERM, 1)), exited(1, 1, 2)}},
       1,
       "worker 1"},
      {"a worker that the supervisor killed is not the cause",
       {{after_signal(SIGKILL, killed(0, SIGKILL, 1)), exited(1, 3, 2)}},
       3,
       "worker 1"},
      {"an exit with 143 after the supervisor's signal is not the cause",
       {{after_signal(SIGTERM, exited(0, 143, 1)), exited(1, 1, 2)}},
       1,
       "worker 1"},
      {"SIGTERM from outside is a cause", {{killed(0, SIGTERM)}}, 138, "SIGTERM"},
      {"the first failure wins", {{exited(0, 1, 9000), exited(1, 7, 2000)}}, 7, "worker 1"},
      {"a kill beats an abort at the same moment",
       {{killed(0, SIGABRT, 10), killed(1, SIGKILL, 12)}, 0, true},
       138,
       "worker 1"},
      {"a kill beats an exit code at the same moment",
       {{exited(0, 1, 10), killed(1, SIGKILL, 12)}, 0, true},
       138,
       "worker 1"},
      {"an exit code beats an abort at the same moment",
       {{killed(0, SIGABRT, 10), exited(1, 1, 12)}, 0, true},
       1,
       "worker 1"},
      {"the coordinator's order decides between failures of one kind",
       {{exited(0, 1, 10), exited(1, 3, 10)}, 0, true, lost(1)},
       3,
       "worker 1"},
      {"a crash before the first step is final",
       {{killed(0, SIGSEGV)}},
       1,
       "before the first step was finished; job ends with 1"},
      {"a crash after the first step is not", {{killed(0, SIGSEGV)}, 0, true}, 138, "SIGSEGV"},
      {"an abort before the first step is final", {{killed(0, SIGABRT)}}, 1, "SIGABRT"},
      {"a bus error before the first step is final", {{killed(0, SIGBUS)}}, 1, "SIGBUS"},
      {"a division error before the first step is final", {{killed(0, SIGFPE)}}, 1, "SIGFPE"},
      {"an illegal instruction before the first step is final",
       {{killed(0, SIGILL)}},
       1,
       "SIGILL"},
      {"a kill before the first step can be tried again", {{killed(0, SIGKILL)}}, 138, "SIGKILL"},
      {"stopped with state saved",
       {{exited(0, 143), exited(1, 143)}, SIGTERM},
       143,
       "asked to stop (SIGTERM); job ends with 143"},
      {"stopped though the workers were done",
       {{exited(0, 0), exited(1, 0)}, SIGINT},
       143,
       "SIGINT"},
      {"stopped programmes that do not handle SIGTERM",
       {{after_signal(SIGTERM, killed(0, SIGTERM))}, SIGTERM},
       143,
       "asked to stop"},
      {"a lost worker seen while stopping",
       {{exited(0, 143), exited(1, 138)}, SIGTERM, true, lost(0)},
       143,
       "asked to stop"},
      {"stopped by force",
       {{exited(0, 143),
         after_signal(SIGKILL, in_phase(Phase::checkpoint, 7, killed(1, SIGKILL)))},
        SIGTERM},
       143,
       "worker 1 (pid 101, host a) did not end in time and was killed in checkpoint of step 7"},
      {"a failure before the stop",
       {{exited(0, 1, 10), after_signal(SIGTERM, exited(1, 143, 20))}, SIGTERM},
       1,
       "worker 0"},
      {"a crash while stopping",
       {{after_signal(SIGTERM, killed(0, SIGSEGV))}, SIGTERM, true},
       138,
       "SIGSEGV"},
      {"a worker that was asked by itself and said goodbye",
       {{exited(0, 0), after_goodbye(exited(1, 143))}},
       143,
       "worker 1"},
      {"a worker of another host was lost",
       {{exited(0, 138), exited(1, 138)}, 0, true, lost(3)},
       138,
       "worker 3 (pid 203, host b) was lost in exchange of step 12: connection closed; job ends "
       "with 138"},
      {"a worker failed for good, and the coordinator first saw one of another host that failed "
       "too",
       {{exited(0, 2), exited(1, 2)}, 0, true, lost(3)},
       2,
       "worker 0 (pid 100, host a) failed with exit code 2"},
      {"aborts because of a worker of another host",
       {{killed(0, SIGABRT)}, 0, true, lost(3)},
       138,
       "worker 3"},
      {"a worker fell silent and the supervisor killed it",
       {{exited(0, 138), after_signal(SIGKILL, killed(1, SIGKILL))},
        0,
        true,
        lost(1, "silent for 10.2 s")},
       138,
       "worker 1 (pid 201, host b) was lost in exchange of step 12: silent for 10.2 s"},
      {"a worker left without goodbye",
       {{exited(0, 0), exited(1, 138)}, 0, true, lost(0)},
       1,
       "without saying goodbye"},
      {"the lost worker that the coordinator saw is the failure that the supervisor saw",
       {{killed(1, SIGKILL), exited(0, 138)}, 0, true, lost(1)},
       138,
       "worker 1 (pid 101, host a) was killed by signal 9"},
      {"too few were left",
       {{killed(1, SIGKILL), exited(0, 138)}, 0, true, {}, kTooFew},
       138,
       "1 of at least 2 processes are there; job ends with 138 (try again"},
      {"too few were left because one had failed for good",
       {{exited(1, 1), exited(0, 138)}, 0, true, {}, kTooFew},
       1,
       "worker 1"},
      {"too few were left because one had ended with a code that can be tried again",
       {{exited(1, 137), exited(0, 138)}, 0, true, {}, kTooFew},
       138,
       "1 of at least 2"},
      {"the same step loses a worker each time",
       {{killed(1, SIGSEGV), exited(0, 1)}, 0, true, {}, kUnfinished},
       1,
       "step 7 is never finished; job ends with 1 (try: mend it)"},
      {"no worker of this host is left, and those of other hosts were asked to stop",
       {{}, 0, true, {}, {}, true},
       143,
       "the members on other nodes were asked to stop"},
      {"no worker of this host is left, and none can be started",
       {{}, 0, true, {}, kTooFew},
       138,
       "1 of at least 2 processes are there"},
      {"too few were left after the job was asked to stop",
       {{exited(0, 138)}, SIGTERM, true, {}, kTooFew},
       143,
       "asked to stop"},
  };
}

TEST(Verdict, FollowsTheTable) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.fact);
    const Verdict verdict = judge(row.job);
    EXPECT_EQ(verdict.exit_code, row.exit_code);
    if (row.text) {
      EXPECT_THAT(verdict.text, HasSubstr(row.text));
      EXPECT_THAT(verdict.text, HasSubstr("job ends with " + std::to_string(row.exit_code)));
    } else {
      EXPECT_EQ(verdict.text, "");
    }
    EXPECT_THAT(verdict.text, Not(HasSubstr("\n")));
  }
}

TEST(Verdict, BlamesTheCommandLineOrTheProgrammesOwnCalls) {
  JobEnd job{{exited(0, 2), exited(1, 2)}};
  EXPECT_THAT(judge(job).text, HasSubstr("the command line or configuration is wrong"));
  job.runs_own_programme = true;
  EXPECT_THAT(judge(job).text, HasSubstr("the programme's use of Trireme, or its own arguments"));
}

TEST(Verdict, ExitCodeZeroIsNoFailure) { EXPECT_FALSE(is_failure(exited(0, 0), false)); }

TEST(Verdict, AWorkerThatWasToldToStopAndDidIsNoFailure) {
  EXPECT_FALSE(is_failure(exited(0, 143), true));
  EXPECT_FALSE(is_failure(killed(0, SIGTERM), true));
  EXPECT_TRUE(is_failure(exited(0, 143), false));
  EXPECT_TRUE(is_failure(killed(0, SIGKILL), true));
}

TEST(Verdict, NamesACheckpointThatWasCutOff) {
  WorkerEnd writer = killed(0, SIGKILL);
  writer.signal_sent = SIGKILL;
  writer.saving = 40;
  const Verdict stopped = judge({.workers = {writer, exited(1, 143)}, .stop_signal = SIGTERM});
  EXPECT_EQ(stopped.exit_code, 143);
  EXPECT_THAT(stopped.text,
              HasSubstr("the checkpoint of step 40 was cut off while worker 0 wrote"));
  EXPECT_THAT(stopped.text, HasSubstr("try: a longer launch.stop_grace"));
  writer.signal_sent = 0;  // It was killed from outside.
  const Verdict lost = judge({.workers = {writer, exited(1, 138)}});
  EXPECT_EQ(lost.exit_code, 138);
  EXPECT_THAT(lost.text, HasSubstr("the checkpoint of step 40 was cut off"));
  EXPECT_THAT(lost.text, Not(HasSubstr("stop_grace")));
}

TEST(Verdict, SaysNothingOfACheckpointThatWasFinished) {
  WorkerEnd writer = exited(0, 138);
  writer.saving = 40;
  EXPECT_THAT(judge({.workers = {killed(1, SIGKILL), writer}}).text, Not(HasSubstr("cut off")));
}

TEST(Verdict, SignalsWithoutANameAreNumbered) {
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(SIGRTMIN + 3), "signal " + std::to_string(SIGRTMIN + 3));
}

}  // namespace
}  // namespace trireme::launch::verdict_test
