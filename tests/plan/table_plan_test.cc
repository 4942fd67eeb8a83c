#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/table_plan.h>
#include <limits>
#include <numeric>
#include <set>

#include "../base/expect_error.h"

namespace trireme::plan::table_plan_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const TableFacts& facts) {
  return message_of(ErrorCode::invalid_argument, [&] { plan_tables(facts); });
}

TEST(TablePlan, OneServerHasEveryRow) {
  const TablePlan plan = plan_tables({.tables = {{"ads", 10, 4}, {"words", 0, 8}}});
  check(plan);
  EXPECT_EQ(plan.server_of(0, 9), 0);
  EXPECT_EQ(plan.server_of(1, std::numeric_limits<int64_t>::min()), 0);
  EXPECT_THAT(plan.rows_of_servers(0), ElementsAre(10));
}

TEST(TablePlan, DealsRowsOutEvenly) {
  for (const RowDealing dealing : {RowDealing::hash, RowDealing::modulo})
    for (const int servers : {1, 2, 3, 7, 16})
      for (const int64_t rows : {int64_t{1}, int64_t{15}, int64_t{1000}, int64_t{100'003}}) {
        const TablePlan plan =
            plan_tables({.tables = {{"a", rows, 4}, {"b", rows, 4}, {"c", 0, 4}},
                         .servers = servers,
                         .dealing = dealing});
        check(plan);
        for (const int table : {0, 1}) {
          const std::vector<int64_t> counts = plan.rows_of_servers(table);
          EXPECT_EQ(std::reduce(counts.begin(), counts.end()), rows);
        }
      }
}

TEST(TablePlan, HashingSpreadsRowsThatHaveACommonDivisor) {
  const TablePlan plan = plan_tables({.tables = {{"ads", 0, 4}}, .servers = 4});
  std::vector<int> counts(4);
  for (int64_t row = 0; row < 4000; ++row)
    ++counts[static_cast<size_t>(plan.server_of(0, row * 8))];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 200);
}

TEST(TablePlan, ModuloPutsTheFirstRowsOfTablesOnDifferentServers) {
  const TablePlan plan = plan_tables({.tables = {{"a", 1, 4}, {"b", 1, 4}, {"c", 1, 4}},
                                      .servers = 3,
                                      .dealing = RowDealing::modulo});
  EXPECT_EQ((std::set<int>{plan.server_of(0, 0), plan.server_of(1, 0), plan.server_of(2, 0)}),
            (std::set<int>{0, 1, 2}));
  // Rows below 0 are rows of unbounded tables too.
  for (int64_t row = -10; row < 0; ++row) {
    EXPECT_GE(plan.server_of(0, row), 0);
    EXPECT_LT(plan.server_of(2, row), 3);
  }
}

TEST(TablePlan, CheckFindsARowWithoutAServer) {
  TablePlan plan = plan_tables({.tables = {{"a", 1000, 4}}, .servers = 2});
  plan.facts.servers = 0;
  EXPECT_THAT(message_of(ErrorCode::internal, [&] { check(plan); }), HasSubstr("row 0 of 'a'"));
}

TEST(TablePlan, IsPrintedAndComparedByItsDigest) {
  const TableFacts facts{.tables = {{"ads", 1000, 64}, {"words", 0, 16}}, .servers = 2};
  const TablePlan plan = plan_tables(facts);
  EXPECT_THAT(plan.describe(),
              AllOf(HasSubstr("2 tables on 2 servers, rows dealt out by hash"),
                    HasSubstr("ads [1000, 64]: "), HasSubstr("words [unbounded, 16]\n")));
  EXPECT_EQ(plan.to_json()["tables"][1]["name"], "words");
  EXPECT_EQ(plan.digest(), plan_tables(facts).digest());
  TableFacts other = facts;
  other.dealing = RowDealing::modulo;
  EXPECT_NE(plan.digest(), plan_tables(other).digest());
  EXPECT_EQ(plan.find("words"), 1);
  EXPECT_EQ(plan.find("images"), -1);
}

TEST(TablePlan, RefusesTablesThatCannotBe) {
  EXPECT_THAT(refusal({.tables = {{"a", 3, 4}}, .servers = 0}), HasSubstr("0 parameter servers"));
  EXPECT_THAT(refusal({.tables = {{"a", 3, 4}, {"a", 3, 4}}}), HasSubstr("'a' is there twice"));
  EXPECT_THAT(refusal({.tables = {{"a", -3, 4}}}), HasSubstr("'a' has -3 rows"));
  EXPECT_THAT(refusal({.tables = {{"a", 3, 0}}}), HasSubstr("row of table 'a' has 0 values"));
  EXPECT_THAT(refusal({.tables = {{"", 3, 1}}}), HasSubstr("no name"));
}

}  // namespace
}  // namespace trireme::plan::table_plan_test
