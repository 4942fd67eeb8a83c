// Proofs from logs: good logs, also of several processes, and damaged ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <trireme/monitor/event_json.h>
#include <trireme/train/ledger_audit.h>
#include <fstream>

#include "../base/expect_error.h"

namespace trireme::ledger_audit_test {
namespace {

using monitor::CommitRecord;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const plan::DataPlanOptions kData{.samples = 40, .batch = 10, .seed = 5};

std::string verdict_line(const Json& record) {
  return monitor::to_line(
             monitor::to_json(monitor::Told{.time = 1, .event = monitor::NoticeRecord{record}})) +
         "\n";
}

class LedgerAuditTest : public ::testing::Test {
 protected:
  LedgerAuditTest() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "trireme-audit-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~LedgerAuditTest() override { std::filesystem::remove_all(folder_); }

  // Steps count from 1, with four steps in each epoch.
  static CommitRecord step(int64_t number, int64_t generation = 0, size_t ranks = 2) {
    std::vector<int64_t> shares(ranks, 10 / static_cast<int64_t>(ranks));
    return {generation, number, {(number - 1) / 4, (number - 1) % 4 * 10}, 10, shares, true};
  }
  void go_on(int64_t after_step, int64_t generation = 0, const std::string& log = "log.jsonl",
             Json ledger = {}) {
    write(monitor::ContinueRecord{generation,
                                  after_step,
                                  {after_step / 4, after_step % 4 * 10},
                                  data_,
                                  std::move(ledger)},
          log);
  }
  void steps(int64_t first, int64_t last, int64_t generation = 0,
             const std::string& log = "log.jsonl") {
    for (int64_t number = first; number <= last; ++number)
      write(step(number, generation, generation == 0 ? 2 : 1), log);
  }
  void write(const monitor::Event& event, const std::string& log = "log.jsonl") {
    append(monitor::to_line(monitor::to_json(event, time_ += 0.5)) + "\n", log);
  }
  void append(const std::string& text, const std::string& log = "log.jsonl") {
    std::ofstream(folder_ / log, std::ios::app) << text;
  }
  LedgerAudit audit() const { return audit_logs(logs_of(folder_)); }

  std::filesystem::path folder_;
  plan::DataPlanOptions data_ = kData;
  double time_ = 1000;
};

class AuditOfGoodLogs : public LedgerAuditTest {};
class AuditOfDamagedLogs : public LedgerAuditTest {};

TEST_F(AuditOfGoodLogs, KnowsTheOrderOfBlocks) {
  data_.shuffle = plan::OrderKind::blocks;
  data_.shuffle.blocks = plan::data_blocks({15, 25});
  go_on(0);
  steps(1, 5);
  go_on(5, 1);
  steps(6, 8, 1);
  EXPECT_TRUE(audit().passed());
  EXPECT_EQ(audit().finished_epochs, 2);
  write(step(5, 1, 1));
  const int64_t sample = plan::DataPlan(data_).global_batch({1, 0})[0];
  const std::vector<std::string> errors = audit().errors;
  ASSERT_FALSE(errors.empty());
  EXPECT_THAT(errors[0], HasSubstr("(samples " + std::to_string(sample)));
}

TEST_F(AuditOfGoodLogs, AnUndisturbedRun) {
  write(monitor::RunStart{});
  go_on(0);
  steps(1, 12);
  write(monitor::RunEnd{});
  const LedgerAudit audit = this->audit();
  EXPECT_TRUE(audit.passed());
  EXPECT_EQ(audit.samples, (SampleCount{120, 120, 0, 0}));
  EXPECT_EQ(audit.finished_epochs, 3);
  EXPECT_THAT(audit.notes, IsEmpty());
  EXPECT_THAT(audit.describe(),
              AllOf(HasSubstr("12 batches, 3 epochs finished"), HasSubstr("exactly once")));
}

TEST_F(AuditOfGoodLogs, ARankZeroThatTookOverWritesTheNewestRecordsAgain) {
  go_on(0);
  steps(1, 6);
  // Another process writes these again; then the new generation continues.
  steps(5, 6);
  go_on(6, 1);
  steps(7, 12, 1);
  const LedgerAudit audit = this->audit();
  EXPECT_TRUE(audit.passed()) << audit.describe();
  EXPECT_EQ(audit.written_twice, 2);
  EXPECT_EQ(audit.continuations, 1);
  EXPECT_EQ(audit.batches, 12);
}

TEST_F(AuditOfGoodLogs, AnotherHostsRankZeroHasALogOfItsOwn) {
  go_on(0, 0, "b.jsonl");
  steps(1, 5, 0, "b.jsonl");
  steps(5, 5, 0, "a.jsonl");
  go_on(5, 1, "a.jsonl");
  steps(6, 8, 1, "a.jsonl");
  const LedgerAudit audit = this->audit();
  EXPECT_TRUE(audit.passed()) << audit.describe();
  EXPECT_EQ(audit.samples, (SampleCount{80, 80, 0, 0}));
}

TEST_F(AuditOfGoodLogs, AResumeFromAnOlderCheckpointTakesStepsBack) {
  go_on(0);
  steps(1, 11);
  // The same generation number: this is a new job.
  go_on(5);
  steps(6, 12);
  const LedgerAudit audit = this->audit();
  EXPECT_TRUE(audit.passed()) << audit.describe();
  EXPECT_EQ(audit.taken_back, 6);
  EXPECT_EQ(audit.written_twice, 0);
  EXPECT_EQ(audit.samples, (SampleCount{120, 120, 0, 0}));
}

TEST_F(AuditOfGoodLogs, TheEndOfAProcessMayTearALine) {
  go_on(0);
  steps(1, 5);
  // The next process appends to this line.
  append("{\"event\":\"commit\",\"time\":17");
  go_on(4);
  steps(5, 8);
  append("{\"event\":\"st");
  const LedgerAudit audit = this->audit();
  EXPECT_TRUE(audit.passed()) << audit.describe();
  EXPECT_THAT(audit.notes, ElementsAre(HasSubstr("2 torn lines, the first is line 7")));
}

// The launcher, or a process that starts, appends to the line of the killed process.
TEST_F(AuditOfGoodLogs, ATornLineMayContinueWithARecordOfAnotherKind) {
  go_on(0);
  steps(1, 5);
  append("{\"event\":\"commit\",\"time\":1700.5,\"generation\":0,\"step\":6,\"shares\":[5,");
  append(verdict_line({{"kind", "lost"}, {"rank", 0}, {"text", "worker 0 \"commit\""}}));
  append("{\"event\":\"continue\",\"ti");
  write(monitor::RunStart{});
  append("{\"event\":\"commit\",");
  write(monitor::Message{"resumed"});
  append("\"commit\"\n");
  go_on(4);
  steps(5, 8);
  const LedgerAudit audit = this->audit();
  EXPECT_TRUE(audit.passed()) << audit.describe();
  EXPECT_EQ(audit.samples, (SampleCount{80, 80, 0, 0}));
  EXPECT_THAT(audit.notes, ElementsAre(HasSubstr("3 torn lines, the first is line 7")));
}

TEST_F(AuditOfGoodLogs, ALineMayLackOnlyItsEnd) {
  go_on(0);
  steps(1, 4);
  append(monitor::to_line(monitor::to_json(step(5), time_ += 0.5)));
  append(verdict_line({{"kind", "lost"}, {"rank", 1}}));
  append(monitor::to_line(monitor::to_json(step(6), time_ += 0.5)));
  append("{\"event\":\"step\",\"st");
  go_on(6, 1);
  steps(7, 8, 1);
  append(monitor::to_line(monitor::to_json(step(9, 1, 1), time_ += 0.5)));
  const LedgerAudit audit = this->audit();
  EXPECT_TRUE(audit.passed()) << audit.describe();
  EXPECT_EQ(audit.samples, (SampleCount{90, 90, 0, 0}));
}

TEST_F(AuditOfGoodLogs, ALogThatBeginsHalfWayBringsTheLedgerAlong) {
  Ledger ledger;
  ledger.go_on({0, 0, {}, kData, {}});
  for (int number = 1; number <= 6; ++number) ledger.commit(step(number));
  // The process that took over writes it again.
  write(step(6));
  go_on(6, 0, "log.jsonl", ledger.to_json());
  steps(7, 8);
  LedgerAudit audit = this->audit();
  EXPECT_TRUE(audit.passed()) << audit.describe();
  EXPECT_EQ(audit.samples, (SampleCount{80, 80, 0, 0}));
  EXPECT_THAT(
      audit.notes,
      ElementsAre(HasSubstr("up to step 6 only the checkpoint's ledger records the samples")));

  std::filesystem::remove(folder_ / "log.jsonl");
  go_on(6);
  steps(7, 8);
  audit = this->audit();
  EXPECT_TRUE(audit.passed());
  EXPECT_EQ(audit.samples, (SampleCount{20, 20, 0, 0}));
  EXPECT_THAT(
      audit.notes,
      ElementsAre(HasSubstr("nothing is known about the steps before sample 20 of epoch 1")));
}

TEST_F(AuditOfDamagedLogs, AMissingStepIsFound) {
  go_on(0);
  steps(1, 3);
  steps(5, 12);
  const LedgerAudit audit = this->audit();
  EXPECT_FALSE(audit.passed());
  EXPECT_EQ(audit.samples, (SampleCount{120, 110, 10, 0}));
  EXPECT_THAT(audit.errors, ElementsAre(HasSubstr("epoch 0: positions 30 to 39"),
                                        HasSubstr("after step 3 comes step 5")));
  EXPECT_THAT(audit.describe(), HasSubstr("WRONG: epoch 0"));
  EXPECT_EQ(audit.to_json()["samples"]["lost"], 10);
}

TEST_F(AuditOfDamagedLogs, TheSameSamplesInAnotherStepAreARepetition) {
  go_on(0);
  steps(1, 4);
  CommitRecord again = step(4);
  again.step = 5;
  write(again);
  CommitRecord after = step(5);
  after.step = 6;
  write(after);
  const LedgerAudit audit = this->audit();
  EXPECT_EQ(audit.samples, (SampleCount{50, 40, 0, 10}));
  EXPECT_THAT(audit.errors, ElementsAre(HasSubstr("used 2 times, by steps 4 and 5")));
}

TEST_F(AuditOfDamagedLogs, ARegroupingThatRepeatsACommittedStepIsFound) {
  go_on(0);
  steps(1, 6);
  // Step 6 comes again on other ranks, without a record that it was taken back.
  steps(6, 8, 1);
  const LedgerAudit audit = this->audit();
  EXPECT_EQ(audit.samples.repeated, 10);
  EXPECT_THAT(audit.errors,
              ElementsAre(HasSubstr("used 2 times"), HasSubstr("after step 6 comes step 6")));
}

TEST_F(AuditOfDamagedLogs, ATornLineThatIsNotRepeatedIsFound) {
  go_on(0);
  steps(1, 2);
  append("{\"event\":\"commit\",\"time\n");
  steps(4, 4);
  const LedgerAudit audit = this->audit();
  EXPECT_EQ(audit.samples.lost, 10);
  EXPECT_THAT(audit.notes, SizeIs(1));
}

TEST_F(AuditOfDamagedLogs, StepsWithoutABeginningProveNothing) {
  steps(1, 4);
  EXPECT_THAT(
      audit().errors,
      ElementsAre(HasSubstr("4 records of samples, and none that says where the run begins")));
}

TEST_F(AuditOfDamagedLogs, RecordsWithWrongFieldsAreNamedByLine) {
  go_on(0);
  steps(1, 2);
  append("{\"event\":\"commit\",\"step\":\"three\"}\n");
  CommitRecord wrong = step(3);
  wrong.shares = {5, 6};
  write(wrong);
  EXPECT_THAT(audit().errors,
              ElementsAre(HasSubstr("log.jsonl:4: this record of samples cannot be read"),
                          AllOf(HasSubstr("log.jsonl:5"), HasSubstr("shares make 11"))));
}

TEST_F(AuditOfDamagedLogs, AFolderWithoutRecordsIsRefused) {
  EXPECT_THAT(message_of(ErrorCode::not_found, [&] { logs_of(folder_ / "absent"); }),
              HasSubstr("absent"));
  EXPECT_THAT(message_of(ErrorCode::not_found, [&] { logs_of(folder_); }), HasSubstr("no log"));
  append("not JSON\n");
  message_of(ErrorCode::not_found, [&] { audit(); });
}

}  // namespace
}  // namespace trireme::ledger_audit_test
