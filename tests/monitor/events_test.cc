// Events on their way: JSON and back, and the functions of a sink that they reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "helpers.h"

namespace trireme::monitor::events_test {
namespace {

using ::testing::ElementsAre;

// One event of each kind.
std::vector<Event> one_of_each() {
  return {RunStart{.name = "cnn"},
          StepRecord{.step = 3, .loss = 0.5},
          EvalRecord{.step = 3, .accuracy = 0.75},
          Message{"hello"},
          RunEnd{.stopped = true, .report = {{"steps", 3}}},
          ContinueRecord{.generation = 2, .step = 3},
          CommitRecord{.step = 3, .samples = 2, .shares = {1, 1}},
          SaveRecord{"runs/a/step-000000003"},
          GuardRecord{3, "skip", "the loss of step 4 is NaN"},
          FaultRecord{3, "slow:rank=1,forward=20ms"},
          NoticeRecord{{{"kind", "lost"}, {"rank", 1}, {"text", "worker 1 was lost"}}}};
}

TEST(Events, ComeBackFromJson) {
  const std::vector<Event> events = one_of_each();
  ASSERT_EQ(events.size(), std::variant_size_v<Event>);
  for (const Event& event : events) {
    const Json json = to_json(Told{.rank = 1, .time = 12.5, .event = event});
    const auto read = told_of(json);
    ASSERT_TRUE(read) << json;
    EXPECT_EQ(read->event.index(), event.index()) << json;
    EXPECT_EQ(read->time, 12.5);
    EXPECT_EQ(to_json(read->event), to_json(event));
  }
}

TEST(Events, KnowTheRankThatHasThem) {
  const Json json = to_json(Told{.rank = 2, .time = 1, .event = FaultRecord{7, "kill:rank=2"}});
  EXPECT_EQ(json["rank"], 2);
  EXPECT_EQ(told_of(json)->rank, 2);
  EXPECT_EQ(std::get<FaultRecord>(told_of(json)->event), (FaultRecord{7, "kill:rank=2"}));
  EXPECT_FALSE(to_json(Told{.time = 1, .event = Message{"of the launcher"}}).contains("rank"));
}

TEST(Events, OfSavesAndGuardsAreSentencesInJsonToo) {
  const Json save = to_json(SaveRecord{"runs/a"});
  EXPECT_EQ(save["event"], "message");
  EXPECT_EQ(save["text"], "checkpoint saved: runs/a");
  EXPECT_EQ(to_json(GuardRecord{3, "skip", "a spike"})["text"], "batch skipped: a spike");
  EXPECT_EQ(to_json(GuardRecord{3, "rollback", "a spike"})["text"],
            "back to the newest checkpoint: a spike");
}

TEST(Events, WithoutATimeAreNotTold) {
  EXPECT_TRUE(event_of(to_json(Message{"hello"})));
  EXPECT_FALSE(told_of(to_json(Message{"hello"})));
}

class Sentences : public Sink {
 public:
  void on_message(const std::string& text) override { texts.push_back(text); }
  std::vector<std::string> texts;
};

TEST(Events, ReachASinkOfSentencesAsSentences) {
  Sentences sink;
  for (const Event& event : one_of_each()) sink.take(event);
  EXPECT_THAT(sink.texts, ElementsAre("hello", "checkpoint saved: runs/a/step-000000003",
                                      "batch skipped: the loss of step 4 is NaN"));
}

TEST(Events, ReachASinkOfEventsAsTheyAre) {
  RecordingSink sink;
  for (const Event& event : one_of_each()) sink.take(event);
  ASSERT_EQ(sink.events.size(), one_of_each().size());
  EXPECT_TRUE(std::holds_alternative<SaveRecord>(sink.events[7]));
}

TEST(Events, OfSamplesAndFaultsDoNotGoToTheProgressOfTheLauncher) {
  TextStream out;
  const auto sender = make_progress_lines(out.file());
  for (const Event& event : one_of_each()) sender->take(event);
  RecordingSink sink;
  for (const std::string& line : lines_of(out.text()))
    EXPECT_TRUE(replay_progress(line, sink)) << line;
  EXPECT_EQ(sink.events.size(), one_of_each().size() - 3);
}

}  // namespace
}  // namespace trireme::monitor::events_test
