// Rows of embedding tables in memory: the index, the optimizers, growth, admission and eviction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/parallel/servers/tables/row_gradients.h>
#include <trireme/parallel/servers/tables/row_index.h>
#include <trireme/parallel/servers/tables/row_table.h>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "../base/expect_error.h"

namespace trireme::row_table_test {
namespace {

using servers::RowIndex;
using servers::RowTable;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RowIndex, DoesWhatAMapDoes) {
  std::mt19937_64 random(5);
  for (const int64_t range : {int64_t{20}, int64_t{3000}, std::numeric_limits<int64_t>::max()}) {
    RowIndex index;
    std::map<int64_t, uint32_t> map;
    for (uint32_t i = 0; i < 20000; ++i) {
      int64_t row = std::uniform_int_distribution<int64_t>(-range, range)(random);
      const auto choice = random() % 3;
      if (choice == 0 && !map.empty()) {
        const auto near = map.lower_bound(row);
        row = (near == map.end() ? map.begin() : near)->first;
        index.remove(row);
        map.erase(row);
      } else if (choice == 1 && !map.contains(row)) {
        index.add(row, i, 7);
        map[row] = i;
      }
      ASSERT_EQ(index.find(row), map.contains(row) ? map.at(row) : RowIndex::kNoSlot);
      ASSERT_EQ(index.size(), map.size());
    }
    std::vector<int64_t> rows{range};
    for (const auto& [row, slot] : map) rows.push_back(row);
    std::vector<uint32_t> slots(rows.size());
    index.find(rows, slots.data(), 9);
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_EQ(slots[i], map.contains(rows[i]) ? map.at(rows[i]) : RowIndex::kNoSlot);
    for (const RowIndex::Entry& entry : index.entries()) EXPECT_EQ(entry.used, 9);
    EXPECT_EQ(index.entries().size(), map.size());
  }
}

TEST(RowIndex, GivesNewRowsTheSlotThatIsOffered) {
  RowIndex index;
  EXPECT_EQ(index.find_or_add(-4, 0), 0);
  EXPECT_EQ(index.find_or_add(9, 1), 1);
  EXPECT_EQ(index.find_or_add(-4, 2), 0);
  index.clear();
  EXPECT_EQ(index.size(), 0);
  EXPECT_EQ(index.find_or_add(-4, 2), 2);
}

TEST(RowSums, AreTheSumsOverAllOccurrencesOfARow) {
  const std::vector<int64_t> rows{7, -1, 7};
  const std::vector<float> gradients{1, 2, 10, 20, 100, 200};
  servers::RowSums sums(2);
  sums.add({0, 2, rows, gradients.data()});
  sums.add({0, 2, rows, gradients.data()}, 0.5F);
  EXPECT_THAT(sums.rows(), ElementsAre(7, -1));
  EXPECT_THAT(std::vector<float>(sums.gradients(), sums.gradients() + 4),
              ElementsAre(151.5F, 303, 15, 30));
}

TEST(RowInit, DependsOnSeedTableAndRowAlone) {
  const auto values = [](uint64_t seed, std::string_view table, int64_t row, RowStart start) {
    std::vector<float> result(7);
    servers::initial_row({start, 0.5, seed}, servers::key_of_table(table), row, result.data(), 7);
    return result;
  };
  for (const RowStart start : {RowStart::uniform, RowStart::normal}) {
    const std::vector<float> one = values(1, "ads", 5, start);
    EXPECT_EQ(one, values(1, "ads", 5, start));
    EXPECT_NE(one, values(2, "ads", 5, start));
    EXPECT_NE(one, values(1, "words", 5, start));
    EXPECT_NE(one, values(1, "ads", -5, start));
    EXPECT_NE(one[0], one[1]);
  }
  EXPECT_EQ(values(1, "ads", 5, RowStart::zeros), std::vector<float>(7));
}

TEST(RowInit, HasTheSpreadThatItIsGiven) {
  double sum = 0, squares = 0, largest = 0;
  std::vector<float> row(64);
  for (int64_t i = 0; i < 1000; ++i) {
    servers::initial_row({RowStart::normal, 2, 3}, 1, i, row.data(), 64);
    for (const float value : row) sum += value, squares += value * value;
    servers::initial_row({RowStart::uniform, 0.25, 3}, 1, i, row.data(), 64);
    for (const float value : row) largest = std::max<double>(largest, std::fabs(value));
  }
  EXPECT_NEAR(sum / 64000, 0, 0.03);
  EXPECT_NEAR(squares / 64000, 4, 0.1);
  EXPECT_LE(largest, 0.25);
  EXPECT_GT(largest, 0.249);
}

// A row as the formulas of row_optimizer.h have it, in double.
struct ReferenceRow {
  std::vector<double> w, a, b;
  double count = 0;
  explicit ReferenceRow(std::vector<double> start)
      : w(std::move(start)), a(w.size()), b(w.size()) {}

  void update(const RowOptimizer& o, const std::vector<double>& g) {
    double mean = 0;
    for (const double value : g) mean += value * value / static_cast<double>(g.size());
    count += o.rule == RowRule::row_adagrad ? mean : 1;
    for (size_t i = 0; i < w.size(); ++i) {
      switch (o.rule) {
        case RowRule::sgd: w[i] -= o.lr * g[i]; break;
        case RowRule::adagrad:
          a[i] += g[i] * g[i];
          w[i] -= o.lr * g[i] / (std::sqrt(o.first_sum + a[i]) + o.eps);
          break;
        case RowRule::row_adagrad:
          w[i] -= o.lr * g[i] / (std::sqrt(o.first_sum + count) + o.eps);
          break;
        case RowRule::adam:
          a[i] = o.beta1 * a[i] + (1 - o.beta1) * g[i];
          b[i] = o.beta2 * b[i] + (1 - o.beta2) * g[i] * g[i];
          w[i] -= o.lr * (a[i] / (1 - std::pow(o.beta1, count))) /
                  (std::sqrt(b[i] / (1 - std::pow(o.beta2, count))) + o.eps);
          break;
        case RowRule::ftrl: {
          const double sigma = (std::sqrt(b[i] + g[i] * g[i]) - std::sqrt(b[i])) / o.lr;
          a[i] += g[i] - sigma * w[i];
          b[i] += g[i] * g[i];
          const double sign = a[i] < 0 ? -1 : 1;
          w[i] = std::fabs(a[i]) <= o.l1
                     ? 0
                     : -(a[i] - sign * o.l1) / ((o.beta + std::sqrt(b[i])) / o.lr + o.l2);
        } break;
      }
    }
  }
};

const std::vector<RowOptimizer> kOptimizers = {
    {.rule = RowRule::sgd, .lr = 0.1},
    {.rule = RowRule::adagrad, .lr = 0.1, .first_sum = 0.1},
    {.rule = RowRule::row_adagrad, .lr = 0.1, .eps = 1e-8},
    {.rule = RowRule::adam, .lr = 0.05, .eps = 1e-8},
    {.rule = RowRule::ftrl, .lr = 0.3, .l1 = 0.02, .l2 = 0.1},
};

TEST(RowOptimizer, FollowsItsFormulasForEachRowByItself) {
  for (const RowOptimizer& optimizer : kOptimizers)
    for (const int64_t width : {1, 3, 16, 37}) {
      RowTable table({"ads", 50, width}, {.optimizer = optimizer, .init = {RowStart::zeros}});
      const auto values = static_cast<size_t>(width);
      std::map<int64_t, ReferenceRow> reference;
      std::mt19937 random(3);
      std::vector<float> pulled(5 * values), gradients(5 * values);
      for (uint32_t step = 0; step < 40; ++step) {
        std::vector<int64_t> rows(5);
        for (int64_t i = 0; i < 5; ++i)
          rows[static_cast<size_t>(i)] = i * 10 + std::uniform_int_distribution(0, 3)(random);
        table.pull(rows, step, false, pulled.data());
        for (float& value : gradients) value = std::normal_distribution<float>(0.2F, 1)(random);
        table.push(rows, gradients.data(), step);
        for (size_t i = 0; i < rows.size(); ++i) {
          auto& row = reference.try_emplace(rows[i], std::vector<double>(values)).first->second;
          row.update(optimizer,
                     {gradients.begin() + static_cast<std::ptrdiff_t>(i * values),
                      gradients.begin() + static_cast<std::ptrdiff_t>((i + 1) * values)});
        }
      }
      for (const auto& [row, expected] : reference)
        for (size_t i = 0; i < values; ++i)
          EXPECT_NEAR(table.find(row)[i], expected.w[i], 2e-5)
              << describe(optimizer) << ", row " << row << ", value " << i;
    }
}

TEST(RowOptimizer, FtrlBeginsWithTheInitialValues) {
  RowTable table({"ads", 0, 8},
                 {.optimizer = {.rule = RowRule::ftrl, .lr = 0.5, .l1 = 0.1, .l2 = 1},
                  .init = {RowStart::normal, 1, 4}});
  const std::vector<int64_t> rows{77};
  std::vector<float> before(8), after(8);
  table.pull(rows, 0, false, before.data());
  const std::vector<float> nothing(8, 0.0F);
  table.push(rows, nothing.data(), 1);
  table.pull(rows, 1, false, after.data());
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(before[i], after[i], 1e-5);
}

TEST(RowOptimizer, RefusesOptionsOutOfRange) {
  const auto refusal = [](const RowOptimizer& optimizer) {
    return message_of(ErrorCode::invalid_argument, [&] { check(optimizer); });
  };
  EXPECT_THAT(refusal({.lr = 0}), HasSubstr("lr of a table's optimizer is 0"));
  EXPECT_THAT(refusal({.beta2 = 1}), HasSubstr("beta2"));
  EXPECT_THAT(refusal({.rule = RowRule::ftrl, .beta = 0}), HasSubstr("beta"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { row_rule_from_string("sdg"); }),
              AllOf(HasSubstr("\"sdg\""), HasSubstr("ftrl")));
  EXPECT_EQ(row_rule_from_string("row_adagrad"), RowRule::row_adagrad);
}

std::vector<float> pull(RowTable& table, const std::vector<int64_t>& rows, uint32_t now = 0,
                        bool peeks = false) {
  std::vector<float> values(rows.size() * static_cast<size_t>(table.spec().width));
  table.pull(rows, now, peeks, values.data());
  return values;
}

void push_ones(RowTable& table, const std::vector<int64_t>& rows, uint32_t now = 0) {
  const std::vector<float> ones(rows.size() * static_cast<size_t>(table.spec().width), 1);
  table.push(rows, ones.data(), now);
}

TEST(RowTable, GrowsWithTheRowsThatAreUsed) {
  RowTable table({"words", 0, 4}, {});
  EXPECT_EQ(table.facts().rows, 0);
  const std::vector<int64_t> rows{std::numeric_limits<int64_t>::min(), -1, 0, 1'000'000'000'000};
  pull(table, rows);
  EXPECT_EQ(table.rows(), rows);
  EXPECT_EQ(table.facts().made, 4);
  std::vector<int64_t> many(100'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i) * 1'000'003;
  const std::vector<float> first = pull(table, many);
  EXPECT_EQ(table.facts().rows, 100'003);  // Row 0 was there.
  EXPECT_EQ(pull(table, many), first);
}

TEST(RowTable, ReadsRowsInEvaluationWithoutMakingThem) {
  RowTable table({"words", 0, 4}, {.optimizer = {.lr = 1}});
  const std::vector<float> peeked = pull(table, {5, 6}, 0, /*peeks=*/true);
  EXPECT_EQ(table.facts().rows, 0);
  EXPECT_EQ(table.facts().pulled, 0);
  EXPECT_EQ(pull(table, {5, 6}), peeked);
}

TEST(RowTable, AdmitsARowAtItsNthPull) {
  RowTable table({"words", 0, 2}, {.optimizer = {.lr = 1}, .admit_after = 3});
  const std::vector<float> initial = pull(table, {5});
  push_ones(table, {5});
  EXPECT_EQ(pull(table, {5}), initial);
  EXPECT_EQ(table.facts().rows, 0);
  EXPECT_EQ(table.facts().dropped, 1);
  EXPECT_EQ(pull(table, {5}), initial);
  EXPECT_EQ(table.facts().rows, 1);
  push_ones(table, {5});
  EXPECT_THAT(pull(table, {5}), ElementsAre(initial[0] - 1, initial[1] - 1));
}

TEST(RowTable, EvictsRowsThatWereNotUsedForSoManyUpdates) {
  RowTable table({"words", 0, 2}, {.optimizer = {.lr = 1}, .evict_unused = 10});
  const std::vector<float> initial = pull(table, {1, 2});
  push_ones(table, {1, 2});
  for (uint32_t now = 1; now <= 12; ++now) {
    pull(table, {2}, now);
    table.evict_unused(now);
  }
  EXPECT_THAT(table.rows(), ElementsAre(2));
  EXPECT_EQ(table.facts().evicted, 1);
  // It has its initial value again, and its pushes are dropped until it is pulled.
  push_ones(table, {1}, 13);
  EXPECT_EQ(table.facts().dropped, 1);
  const std::vector<float> now = pull(table, {1, 2}, 13);
  EXPECT_EQ(now[0], initial[0]);
  EXPECT_EQ(now[2], initial[2] - 1);
}

TEST(RowTable, EvictsTheLeastRecentRowsAtItsBudget) {
  RowTable table({"words", 0, 64}, {.budget_bytes = 64 << 10, .evicts_least_recent = true});
  for (uint32_t now = 0; now < 300; ++now) {
    pull(table, {int64_t{now} * 2 + 1, 0}, now);  // Row 0 is used in every step.
    EXPECT_LE(table.facts().bytes, 64 << 10);
  }
  const std::vector<int64_t> rows = table.rows();
  EXPECT_GT(rows.size(), 150);
  EXPECT_EQ(rows.front(), 0);
  EXPECT_GT(rows[1], 1);  // The others are the newest.
  EXPECT_EQ(rows[rows.size() - 1], 599);
  for (size_t i = 2; i < rows.size(); ++i) EXPECT_EQ(rows[i], rows[i - 1] + 2);
}

TEST(RowTable, RefusesToGrowPastItsBudget) {
  RowTable table({"words", 0, 64}, {.budget_bytes = 64 << 10});
  std::vector<int64_t> rows(100);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  pull(table, rows);
  for (int64_t& row : rows) row += 100;
  pull(table, rows);
  for (int64_t& row : rows) row += 100;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { pull(table, rows); }),
              AllOf(HasSubstr("table 'words' has 200 rows of 256 bytes, and 100 more do not fit"),
                    HasSubstr("65.5 KB"), HasSubstr("try: a larger budget_bytes")));
  EXPECT_EQ(table.facts().rows, 200);  // No row is made then.
  for (int64_t& row : rows) row -= 100;
  pull(table, rows);  // Rows that are there can be used on.
}

TEST(RowTable, TheRowsOfAStepMustFitTogether) {
  RowTable table({"words", 0, 64}, {.budget_bytes = 64 << 10, .evicts_least_recent = true});
  std::vector<int64_t> rows(400);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { pull(table, rows); }),
              HasSubstr("smaller batches"));
}

TEST(RowTable, RefusesOptionsThatDoNotFit) {
  const auto refusal = [](const TableOptions& options) {
    return message_of(ErrorCode::invalid_argument, [&] { check(options, {"ads", 3, 4}); });
  };
  EXPECT_THAT(refusal({.admit_after = 0}), HasSubstr("admit_after of table 'ads' is 0"));
  EXPECT_THAT(refusal({.admit_after = 256}), HasSubstr("1 to 255"));
  EXPECT_THAT(refusal({.evict_unused = -1}), HasSubstr("evict_unused"));
  EXPECT_THAT(refusal({.evicts_least_recent = true}), HasSubstr("budget_bytes"));
  EXPECT_THAT(refusal({.init = {.scale = -1}}), HasSubstr("scale of -1"));
}

}  // namespace
}  // namespace trireme::row_table_test
