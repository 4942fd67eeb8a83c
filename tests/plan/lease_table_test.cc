// Leases, explored in every order of events for small sizes.
#include <trireme/plan/lease_table.h>

#include <gmock/gmock.h>
#include <bit>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "../base/expect_error.h"

namespace trireme::plan {
namespace {

// The table, and what a watcher knows of it.
struct Watched {
  LeaseTable table{0};
  std::map<int, int64_t> holds;  // [worker]
  std::set<int64_t> done;
  bool stopped = false;
  std::string key() const {
    std::string text = table.to_json().dump() + (stopped ? "s" : "");
    for (const auto& [worker, lease] : holds) text += " " + std::to_string(worker * 100 + lease);
    for (const int64_t lease : done) text += "/" + std::to_string(lease);
    return text;
  }
};

void expect_sound(const Watched& now) {
  EXPECT_EQ(now.table.done(), std::ssize(now.done));
  EXPECT_LE(now.table.done(), now.table.limit());
  EXPECT_EQ(now.table.is_over(), std::ssize(now.done) == now.table.limit());
  EXPECT_EQ(LeaseTable::from_json(now.table.to_json()), now.table);
  for (const auto& [worker, lease] : now.holds) EXPECT_TRUE(now.table.has(worker, lease));
}

// Every event that may come next, applied to a copy.
std::vector<Watched> next_of(const Watched& now, int workers) {
  std::vector<Watched> all;
  for (int worker = 0; worker < workers; ++worker) {
    Watched taken = now;
    if (const auto lease = taken.table.take(worker)) {
      if (now.holds.contains(worker)) {
        EXPECT_EQ(*lease, now.holds.at(worker)) << "the same one again";
      }
      EXPECT_FALSE(now.done.contains(*lease));
      for (const auto& [other, held] : now.holds)
        EXPECT_TRUE(other == worker || held != *lease) << "two workers have one lease";
      taken.holds[worker] = *lease;
      all.push_back(taken);
    } else {
      EXPECT_TRUE(now.table.is_empty());
    }
    if (now.holds.contains(worker)) {
      Watched finished = now, returned = now;
      EXPECT_TRUE(finished.table.finish(now.holds.at(worker)));
      EXPECT_FALSE(finished.table.finish(now.holds.at(worker))) << "it is done once";
      finished.done.insert(now.holds.at(worker));
      finished.holds.erase(worker);
      returned.table.give_back(worker);
      returned.holds.erase(worker);
      all.push_back(finished);
      all.push_back(returned);
    }
  }
  Watched lost = now, stopped = now;
  lost.table.give_back_all();
  lost.holds.clear();
  stopped.table.stop();
  stopped.stopped = true;
  all.push_back(lost);
  all.push_back(stopped);
  return all;
}

TEST(LeaseTable, EachLeaseIsDoneOnceWhateverHappens) {
  for (const int workers : {1, 2, 3})
    for (const int64_t leases : {0, 1, 3, 4}) {
      Watched first;
      first.table = LeaseTable(leases);
      std::set<std::string> known{first.key()};
      std::deque<Watched> open{first};
      size_t ends = 0;
      while (!open.empty()) {
        const Watched now = open.front();
        open.pop_front();
        expect_sound(now);
        ends += now.table.is_over();
        for (const Watched& next : next_of(now, workers))
          if (known.insert(next.key()).second) open.push_back(next);
      }
      EXPECT_GT(ends, 0U);
    }
}

// From every state the round comes to an end if one worker stays.
TEST(LeaseTable, OneWorkerAloneEndsARound) {
  for (int returned = 0; returned < 8; ++returned) {
    LeaseTable table(5);
    for (int worker = 0; worker < 3; ++worker) table.take(worker);
    for (int worker = 0; worker < 3; ++worker)
      if (returned >> worker & 1)
        table.give_back(worker);
      else
        table.finish(worker);
    std::set<int64_t> own;
    while (const auto lease = table.take(0)) {
      own.insert(*lease);
      table.finish(*lease);
    }
    EXPECT_TRUE(table.is_over());
    EXPECT_EQ(std::ssize(own), 2 + std::popcount(static_cast<unsigned>(returned)));
  }
}

TEST(LeaseTable, AStoppedRoundEndsWithTheLeasesThatSomebodyHasHad) {
  LeaseTable table(10);
  table.take(0);
  table.take(1);
  table.give_back(0);
  table.stop();
  EXPECT_EQ(table.limit(), 2);
  table.finish(1);
  EXPECT_FALSE(table.is_over());
  EXPECT_EQ(table.take(1), 0) << "the one that came back is still to be done";
  table.finish(0);
  EXPECT_TRUE(table.is_over());
  EXPECT_EQ(table.take(0), std::nullopt);
}

// The copy of a table knows of the leases that are done, and not who has which.
TEST(LeaseTable, ACopyTakesThePlaceOfATable) {
  LeaseTable table(6), copy(6);
  for (int worker = 0; worker < 4; ++worker) table.take(worker);
  for (const int64_t done : {2, 0}) {
    EXPECT_TRUE(table.finish(done));
    EXPECT_TRUE(copy.finish(done));
  }
  EXPECT_TRUE(copy.claim(3, 3)) << "its worker has computed it";
  EXPECT_FALSE(copy.claim(2, 3)) << "another worker has it";
  EXPECT_FALSE(copy.claim(0, 0)) << "it is done";
  EXPECT_FALSE(copy.claim(0, 6)) << "it is none of the round";
  EXPECT_EQ(copy.take(5), 1) << "the copy does not know that worker 1 has it";
  EXPECT_FALSE(copy.claim(1, 1)) << "so its push does not count";
  EXPECT_TRUE(copy.claim(2, 5)) << "a worker may have taken more than the copy has heard of";
  EXPECT_EQ(copy.take(0), 4);
  for (const int64_t lease : {1, 3, 4, 5}) EXPECT_TRUE(copy.finish(lease));
  EXPECT_TRUE(copy.is_over());
}

TEST(LeaseTable, ACopyEndsARoundWhereTheTableDoes) {
  LeaseTable copy(10);
  copy.take(0);
  copy.claim(1, 7);
  copy.stop_at(3);
  EXPECT_EQ(copy.limit(), 3);
  EXPECT_FALSE(copy.claim(1, 7)) << "the round has no such lease any more";
  for (const int64_t lease : {0, 1, 2}) EXPECT_TRUE(copy.finish(lease));
  EXPECT_TRUE(copy.is_over());
  EXPECT_EQ(copy.take(1), std::nullopt);
}

TEST(LeaseTable, RefusesWhatCannotBe) {
  LeaseTable table(2);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { table.finish(2); }),
              ::testing::HasSubstr("lease 2 of a round of 2"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { LeaseTable(-1); }),
              ::testing::HasSubstr("-1"));
}

}  // namespace
}  // namespace trireme::plan
