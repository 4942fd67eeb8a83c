#include "../base/expect_error.h"

#include <gtest/gtest.h>
#include <trireme/train/replica_stage.h>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace trireme::replica_stage_test {
namespace {

using enum Stage;

std::vector<Stage> all_stages() {
  std::vector<Stage> stages;
  for (int i = 0; i < kStages; ++i) stages.push_back(static_cast<Stage>(i));
  return stages;
}

// The drawing in docs/architecture.md, an arrow an entry.
const std::set<std::pair<Stage, Stage>> kArrows = {
    {fresh, joining},
    {joining, between_steps},
    {joining, fresh},
    {parted, rejoining},
    {rejoining, between_steps},
    {rejoining, parted},
    {between_steps, in_step},
    {between_steps, going_back},
    {between_steps, regrouping},
    {between_steps, finished},
    {between_steps, parted},
    {between_steps, torn},
    {in_step, between_steps},
    {in_step, parted},
    {in_step, torn},
    {going_back, between_steps},
    {going_back, fresh},
    {regrouping, parted},
    {regrouping, torn},
    {finished, parted},
    {finished, torn},
};

// A way to each stage from the first one.
std::map<Stage, std::vector<Stage>> ways() {
  std::map<Stage, std::vector<Stage>> ways = {{fresh, {}}};
  std::deque<Stage> open = {fresh};
  while (!open.empty()) {
    const Stage from = open.front();
    open.pop_front();
    for (const auto& [before, after] : kArrows) {
      if (before != from || ways.contains(after)) continue;
      ways[after] = ways[from];
      ways[after].push_back(after);
      open.push_back(after);
    }
  }
  return ways;
}

ReplicaStage at(Stage stage) {
  ReplicaStage replica;
  const std::vector<Stage> way = ways().at(stage);
  for (const Stage next : way) replica.enter(next);
  return replica;
}

TEST(ReplicaStage, CanReachEveryStage) { EXPECT_EQ(ways().size(), static_cast<size_t>(kStages)); }

TEST(ReplicaStage, AllowsExactlyTheArrowsOfTheDrawing) {
  for (const Stage from : all_stages())
    for (const Stage to : all_stages()) {
      SCOPED_TRACE(std::string(to_string(from)) + " -> " + std::string(to_string(to)));
      ReplicaStage replica = at(from);
      if (kArrows.contains({from, to})) {
        replica.enter(to);
        EXPECT_EQ(replica.now(), to);
      } else {
        const std::string message = message_of(ErrorCode::internal, [&] { replica.enter(to); });
        EXPECT_NE(message.find(to_string(from)), std::string::npos) << message;
        EXPECT_NE(message.find(to_string(to)), std::string::npos) << message;
        EXPECT_EQ(replica.now(), from);
      }
    }
}

TEST(ReplicaStage, KeepsTheStateThatItHasWhenItLeaves) {
  const std::map<Stage, Stage> after = {{fresh, fresh},      {joining, fresh},
                                        {parted, parted},    {rejoining, parted},
                                        {in_step, parted},   {between_steps, parted},
                                        {going_back, fresh}, {regrouping, parted},
                                        {finished, parted},  {torn, torn}};
  for (const auto& [from, to] : after) {
    ReplicaStage replica = at(from);
    const bool had_state = replica.has_state();
    replica.leave();
    EXPECT_EQ(replica.now(), to) << to_string(from);
    EXPECT_EQ(replica.has_state(), had_state) << to_string(from);
  }
}

TEST(ReplicaStage, HasNoStateWhileItTakesItsFirstOrGivesItUp) {
  for (const Stage without : {fresh, joining, going_back, torn})
    EXPECT_FALSE(at(without).has_state()) << to_string(without);
  // A replica that comes again still has the state of its last generation.
  EXPECT_TRUE(at(rejoining).has_state());
  EXPECT_FALSE(at(rejoining).is_bound());
}

}  // namespace
}  // namespace trireme::replica_stage_test
