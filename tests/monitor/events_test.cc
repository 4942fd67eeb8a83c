// Events on their way: JSON and back, and the functions of a sink that they reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <cmath>
#include <limits>

#include "helpers.h"

namespace trireme::monitor::events_test {
namespace {

using ::testing::ElementsAre;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

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
          NoticeRecord{{{"kind", "lost"}, {"rank", 1}, {"text", "worker 1 was lost"}}},
          SkipRecord{.step = 3, .samples = 2},
          ScalarRecord{.step = 3, .values = {{"critic/loss", 0.5}, {"bad", kNaN}}}};
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

TEST(Events, ComeBackWithEveryField) {
  const RunStart start{.name = "cnn",
                       .strategy = "mirrored",
                       .workers = 1,
                       .world_size = 2,
                       .total_steps = 10,
                       .first_step = 3,
                       .steps_per_epoch = 5,
                       .parameters = 7};
  const auto started = std::get<RunStart>(*event_of(to_json(start)));
  EXPECT_EQ(started.name, "cnn");
  EXPECT_EQ(started.strategy, "mirrored");
  EXPECT_EQ(started.workers, 1);
  EXPECT_EQ(started.world_size, 2);
  EXPECT_EQ(started.total_steps, 10);
  EXPECT_EQ(started.first_step, 3);
  EXPECT_EQ(started.steps_per_epoch, 5);
  EXPECT_EQ(started.parameters, 7);
  const StepRecord step{.step = 4,
                        .epoch = 1,
                        .loss = 0.1,
                        .learning_rate = 1e-3,
                        .gradient_norm = 2.5,
                        .samples = 64,
                        .seconds = 0.25,
                        .operations = 2,
                        .bytes_sent = 800,
                        .updated_elements = 100,
                        .steps = 3};
  const auto stepped = std::get<StepRecord>(*event_of(to_json(step)));
  EXPECT_EQ(stepped.step, 4);
  EXPECT_EQ(stepped.epoch, 1);
  EXPECT_EQ(stepped.loss, 0.1);
  EXPECT_EQ(stepped.learning_rate, 1e-3);
  EXPECT_EQ(stepped.gradient_norm, 2.5);
  EXPECT_EQ(stepped.samples, 64);
  EXPECT_EQ(stepped.seconds, 0.25);
  EXPECT_EQ(stepped.operations, 2);
  EXPECT_EQ(stepped.bytes_sent, 800);
  EXPECT_EQ(stepped.updated_elements, 100);
  EXPECT_EQ(stepped.steps, 3);
  EXPECT_LT(std::get<StepRecord>(*event_of(to_json(StepRecord{}))).gradient_norm, 0);
  const SkipRecord skip{4, 64, 0.25, 2, 800};
  const auto skipped = std::get<SkipRecord>(*event_of(to_json(skip)));
  EXPECT_EQ(skipped.step, 4);
  EXPECT_EQ(skipped.samples, 64);
  EXPECT_EQ(skipped.seconds, 0.25);
  EXPECT_EQ(skipped.operations, 2);
  EXPECT_EQ(skipped.bytes_sent, 800);
  const EvalRecord eval{.step = 5, .epoch = 1, .loss = 0.3, .accuracy = 0.9, .samples = 360};
  const auto evaluated = std::get<EvalRecord>(*event_of(to_json(eval)));
  EXPECT_EQ(evaluated.loss, 0.3);
  EXPECT_EQ(evaluated.accuracy, 0.9);
  EXPECT_EQ(evaluated.samples, 360);
  EXPECT_TRUE(evaluated.metrics.empty());
  const EvalRecord more{.step = 5, .metrics = {{"f1", 0.5}, {"auc", kInfinity}}};
  EXPECT_EQ(std::get<EvalRecord>(*event_of(to_json(more))).metrics, more.metrics);
  const ContinueRecord from{.generation = 2, .step = 3, .cause = "rollback", .checkpoint = "c"};
  const auto continued = std::get<ContinueRecord>(*event_of(to_json(from)));
  EXPECT_EQ(continued.checkpoint, "c");
  EXPECT_EQ(continued.cause, "rollback");
  const RunEnd end{.stopped = true, .report = {{"steps", 5}, {"loss_history", {1, 2, 3}}}};
  const auto ended = std::get<RunEnd>(*event_of(to_json(end)));
  EXPECT_TRUE(ended.stopped);
  EXPECT_EQ(ended.report, (Json{{"steps", 5}}));
}

TEST(Events, OrdersComeBack) {
  plan::OrderOptions blocks = plan::OrderKind::blocks;
  blocks.blocks = plan::data_blocks({3, 4, 4});
  for (const plan::OrderOptions& order : {plan::OrderOptions(true), plan::OrderOptions(false),
                                          plan::OrderOptions(plan::OrderKind::index), blocks}) {
    const ContinueRecord from{.data = {.samples = 11, .batch = 2, .shuffle = order}};
    const Json json = to_json(from);
    EXPECT_TRUE(std::get<ContinueRecord>(*event_of(json)).data.shuffle == order) << json.dump();
  }
  EXPECT_EQ(to_json(ContinueRecord{})["data"]["shuffle"], true);
  for (const Json& wrong : {Json(3), Json("random"), Json{{"kind", "blocks"}, {"window", "x"}},
                            Json{{"kind", "blocks"}, {"blocks", 7}}, Json(nullptr)}) {
    Json json = to_json(ContinueRecord{});
    json["data"]["shuffle"] = wrong;
    EXPECT_FALSE(event_of(json)) << json.dump();
  }
}

TEST(Events, LossesThatAreNotNumbersComeBack) {
  const auto loss_of = [](double loss) {
    const StepRecord step{.step = 1, .loss = loss, .gradient_norm = kNaN};
    const auto read = std::get<StepRecord>(*event_of(to_json(step)));
    EXPECT_TRUE(std::isnan(read.gradient_norm));
    return read.loss;
  };
  EXPECT_TRUE(std::isnan(loss_of(kNaN)));
  EXPECT_EQ(loss_of(kInfinity), kInfinity);
  EXPECT_EQ(loss_of(-kInfinity), -kInfinity);
}

TEST(Events, ThatAreDamagedAreRefused) {
  for (const std::string text :
       {"null", "7", "[]", "{}", R"({"event":7})", R"({"event":"dance"})", R"({"event":"step"})",
        R"({"event":"message"})", R"({"event":"message","text":1})",
        R"({"event":"end","stopped":1,"report":{}})",
        R"({"event":"eval","step":1.5,"epoch":0,"loss":1,"accuracy":1})",
        R"({"event":"eval","step":1e300,"epoch":0,"loss":1,"accuracy":1})",
        R"({"event":"eval","step":18446744073709551615,"epoch":0,"loss":1,"accuracy":1})",
        R"({"event":"eval","step":1,"epoch":0,"loss":"much","accuracy":1})",
        R"({"event":"skip","step":1,"samples":1,"seconds":1,"operations":1})"})
    EXPECT_FALSE(event_of(Json::parse(text))) << text;
}

TEST(Events, OfStepsAreMergedWithoutALoss) {
  const StepRecord first{
      .step = 1, .loss = 1, .samples = 30, .seconds = 1, .operations = 2, .bytes_sent = 10};
  const StepRecord second{.step = 2,
                          .loss = 2,
                          .samples = 10,
                          .seconds = 2,
                          .operations = 3,
                          .bytes_sent = 20,
                          .updated_elements = 5};
  const StepRecord third{.step = 3, .loss = 5, .samples = 10, .seconds = 4};
  for (const StepRecord& all :
       {merged(merged(first, second), third), merged(first, merged(second, third))}) {
    EXPECT_EQ(all.step, 3);
    EXPECT_EQ(all.steps, 3);
    EXPECT_NEAR(all.loss, (30 * 1 + 10 * 2 + 10 * 5) / 50.0, 1e-12);
    EXPECT_EQ(all.samples, 50);
    EXPECT_EQ(all.seconds, 7);
    EXPECT_EQ(all.operations, 5);
    EXPECT_EQ(all.bytes_sent, 30);
  }
  EXPECT_EQ(merged(first, second).updated_elements, 5);
}

class Copying : public EventSink {
 public:
  explicit Copying(std::vector<std::pair<int, Event>>& to, int name) : to_(to), name_(name) {}
  void take(const Event& event) override { to_.emplace_back(name_, event); }

 private:
  std::vector<std::pair<int, Event>>& to_;
  const int name_;
};

TEST(FanOut, TellsAllSinksInOrder) {
  std::vector<std::pair<int, Event>> heard;
  std::vector<std::unique_ptr<Sink>> sinks;
  for (const int name : {1, 2}) sinks.push_back(std::make_unique<Copying>(heard, name));
  const auto sink = make_fan_out(std::move(sinks));
  for (const Event& event : one_of_each()) sink->take(event);
  ASSERT_EQ(heard.size(), 2 * one_of_each().size());
  for (size_t i = 0; i < heard.size(); ++i) {
    EXPECT_EQ(heard[i].first, i % 2 == 0 ? 1 : 2);
    EXPECT_EQ(heard[i].second.index(), one_of_each()[i / 2].index());
  }
}

}  // namespace
}  // namespace trireme::monitor::events_test
