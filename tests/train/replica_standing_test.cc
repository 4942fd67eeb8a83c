#include "../base/expect_error.h"

#include <gtest/gtest.h>
#include <trireme/train/replica_standing.h>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace trireme::replica_standing_test {
namespace {

using enum Standing;

std::vector<Standing> all_standings() {
  std::vector<Standing> standings;
  for (int i = 0; i < kStandings; ++i) standings.push_back(static_cast<Standing>(i));
  return standings;
}

// The drawing in docs/architecture.md, an arrow an entry.
const std::set<std::pair<Standing, Standing>> kArrows = {
    {fresh, joining},          {joining, between_steps},    {joining, fresh},
    {parted, rejoining},       {rejoining, between_steps},  {rejoining, parted},
    {between_steps, in_step},  {between_steps, going_back}, {between_steps, regrouping},
    {between_steps, finished}, {between_steps, parted},     {between_steps, torn},
    {in_step, between_steps},  {in_step, going_back},       {in_step, parted},
    {in_step, torn},           {going_back, between_steps}, {going_back, fresh},
    {regrouping, parted},      {regrouping, torn},          {finished, parted},
    {finished, torn},
};

// A way to each standing from the first one.
std::map<Standing, std::vector<Standing>> ways() {
  std::map<Standing, std::vector<Standing>> ways = {{fresh, {}}};
  std::deque<Standing> open = {fresh};
  while (!open.empty()) {
    const Standing from = open.front();
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

ReplicaStanding at(Standing standing) {
  ReplicaStanding replica;
  const std::vector<Standing> way = ways().at(standing);
  for (const Standing next : way) replica.enter(next);
  return replica;
}

TEST(ReplicaStanding, CanReachEveryStanding) {
  EXPECT_EQ(ways().size(), static_cast<size_t>(kStandings));
}

TEST(ReplicaStanding, AllowsExactlyTheArrowsOfTheDrawing) {
  for (const Standing from : all_standings())
    for (const Standing to : all_standings()) {
      SCOPED_TRACE(std::string(to_string(from)) + " -> " + std::string(to_string(to)));
      ReplicaStanding replica = at(from);
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

TEST(ReplicaStanding, KeepsTheStateThatItHasWhenItLeaves) {
  const std::map<Standing, Standing> after = {{fresh, fresh},      {joining, fresh},
                                              {parted, parted},    {rejoining, parted},
                                              {in_step, parted},   {between_steps, parted},
                                              {going_back, fresh}, {regrouping, parted},
                                              {finished, parted},  {torn, torn}};
  for (const auto& [from, to] : after) {
    ReplicaStanding replica = at(from);
    const bool had_state = replica.has_state();
    replica.leave();
    EXPECT_EQ(replica.now(), to) << to_string(from);
    EXPECT_EQ(replica.has_state(), had_state) << to_string(from);
  }
}

TEST(ReplicaStanding, HasNoStateWhileItTakesItsFirstOrGivesItUp) {
  for (const Standing without : {fresh, joining, going_back, torn})
    EXPECT_FALSE(at(without).has_state()) << to_string(without);
  // A replica that comes again still has the state of its last generation.
  EXPECT_TRUE(at(rejoining).has_state());
  EXPECT_FALSE(at(rejoining).is_bound());
}

}  // namespace
}  // namespace trireme::replica_standing_test
