#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/memory_plan.h>
#include <trireme/plan/memory_simulation.h>
#include <cmath>
#include <functional>
#include <limits>

#include "../base/expect_error.h"
#include "memory_chains.h"

namespace trireme::plan::memory_plan_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Chain = std::vector<BlockMemory>;
using D = MemoryDecision;
constexpr double kNever = std::numeric_limits<double>::infinity();

MemoryPlanOptions with(const std::string& policy, int64_t budget) {
  MemoryPlanOptions options;
  options.policy = policy;
  options.budget_bytes = budget;
  return options;
}

// Blocks of 1 s forward, 2 s backward, 40 bytes inside, 10 bytes between them.
Chain equal_chain(int blocks) {
  Chain chain;
  for (int i = 0; i < blocks; ++i)
    chain.push_back({"layer" + std::to_string(i), 1, 2, 40, 10, 10});
  return chain;
}

std::vector<D> decisions_of(const MemoryPlan& plan) {
  std::vector<D> decisions;
  for (const BlockMemory& block : plan.blocks) decisions.push_back(block.decision);
  return decisions;
}

std::string operations_text(const MemoryPlan& plan) {
  std::string text;
  for (const MemoryOperation& operation : plan.operations)
    text += (text.empty() ? "" : " ") + to_string(operation);
  return text;
}

std::string refusal(const Chain& chain, const MemoryPlanOptions& options) {
  return message_of(ErrorCode::invalid_argument, [&] { plan_memory(chain, options); });
}

// The plan's seconds, or infinity if it refuses the budget.
double seconds_of(const Chain& chain, const MemoryPlanOptions& options) {
  try {
    const MemoryPlan plan = plan_memory(chain, options);
    check(plan);
    EXPECT_LE(plan.peak_bytes, options.budget_bytes);
    return plan.seconds;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the least that works"));
    return kNever;
  }
}

TEST(MemoryPlan, KeepsEverythingWithoutABudget) {
  for (const char* policy : {"none", "auto"}) {
    const MemoryPlan plan = plan_memory(equal_chain(3), with(policy, 0));
    check(plan);
    EXPECT_THAT(decisions_of(plan), Each(D::keep));
    EXPECT_EQ(operations_text(plan), "F_all(0) F_all(1) F_all(2) loss B(2) B(1) B(0)");
    // At B(2): x(0) to x(3), three blocks' activations, and the gradients of x(3) and x(2).
    EXPECT_EQ(plan.peak_bytes, 4 * 10 + 3 * 40 + 2 * 10);
    EXPECT_EQ(plan.slowdown(), 1);
  }
}

TEST(MemoryPlan, RecomputesAllButTheLastBlockWithoutABudget) {
  const MemoryPlan plan = plan_memory(equal_chain(3), with("recompute", 0));
  check(plan);
  EXPECT_EQ(operations_text(plan),
            "F_checkpoint(0) F_checkpoint(1) F_all(2) loss B(2) F_all(1) B(1) F_all(0) B(0)");
  EXPECT_FALSE(plan.is_nested);
  EXPECT_DOUBLE_EQ(plan.slowdown(), 11.0 / 9);
  // During B(2): x(0) to x(3), one block's activations, two gradients.
  EXPECT_EQ(plan.peak_bytes, 4 * 10 + 40 + 2 * 10);
}

TEST(MemoryPlan, KeepsEverythingIfTheBudgetAllowsIt) {
  const Chain chain = equal_chain(6);
  const int64_t all = plan_memory(chain, with("none", 0)).peak_bytes;
  for (const char* policy : {"none", "recompute", "auto"}) {
    const MemoryPlan plan = plan_memory(chain, with(policy, all));
    EXPECT_THAT(decisions_of(plan), Each(D::keep)) << policy;
    EXPECT_EQ(plan.seconds, plan.keep_all_seconds);
  }
  EXPECT_THAT(decisions_of(plan_memory(chain, with("auto", all - 1))),
              testing::Contains(D::recompute));
}

TEST(MemoryPlan, TakesTheFastestDecisionsOfAll) {
  std::mt19937 random(3);
  for (int round = 0; round < 150; ++round) {
    const int blocks = 1 + static_cast<int>(random() % 6);
    Chain chain = random_chain(random, blocks);
    for (BlockMemory& block : chain) {
      block.saves_input = random() % 3 > 0;
      block.saves_output = random() % 3 == 0;
    }
    MemoryPlanOptions options = with("auto", 1);
    options.can_nest = false;
    options.counts_gradients = random() % 4 > 0;
    options.input_gradient = random() % 2 > 0;
    options.compressed_fraction = random() % 2 > 0 ? 0.5 : 0;
    options.compress_seconds_per_byte = 0.125;
    // All combinations, as (peak, seconds), where a rule for each block leaves no choice.
    std::vector<std::pair<int64_t, double>> all;
    const int choices = options.compressed_fraction > 0 ? 3 : 2;
    for (int code = 0; code < std::pow(choices, blocks); ++code) {
      MemoryPlanOptions fixed = options;
      fixed.budget_bytes = 0;
      int rest = code;
      for (const BlockMemory& block : chain) {
        fixed.rules.push_back(
            {block.name, std::vector{D::keep, D::recompute,
                                     D::compress}[static_cast<size_t>(rest % choices)]});
        rest /= choices;
      }
      const MemoryPlan plan = plan_memory(chain, fixed);
      all.emplace_back(plan.peak_bytes, plan.seconds);
    }
    const int64_t least = std::min_element(all.begin(), all.end())->first;
    const int64_t most = plan_memory(chain, with("none", 0)).peak_bytes;
    for (int64_t budget = least; budget <= most; budget += 1 + most / 20) {
      options.budget_bytes = budget;
      double best = kNever;
      for (const auto& [peak, seconds] : all)
        if (peak <= budget) best = std::min(best, seconds);
      ASSERT_DOUBLE_EQ(seconds_of(chain, options), best) << "budget " << budget;
    }
    options.budget_bytes = least - 1;
    ASSERT_THAT(refusal(chain, options),
                HasSubstr("least that works is " + std::to_string(least) + " B"));
  }
}

TEST(MemoryPlan, FindsTheFastestPersistentScheduleOfAll) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    const Chain chain = random_chain(random, 1 + static_cast<int>(random() % 5));
    EverySchedule every(chain);
    const int64_t most = plan_memory(chain, with("none", 0)).peak_bytes;
    for (int64_t budget = most / 4; budget <= most; budget += 1 + most / 25)
      ASSERT_EQ(seconds_of(chain, with("recompute", budget)), every.least_seconds(budget))
          << "round " << round << ", budget " << budget << " of " << most;
  }
}

TEST(MemoryPlan, RunsBlocksSeveralTimesWhereTheBudgetIsVerySmall) {
  const Chain chain = equal_chain(12);
  const std::string message = refusal(chain, with("recompute", 1));
  const std::string words = "the least that works is ";
  const int64_t least = std::stoll(message.substr(message.find(words) + words.size()));
  const MemoryPlan plan = plan_memory(chain, with("recompute", least));
  check(plan);
  EXPECT_TRUE(plan.is_nested);
  EXPECT_EQ(plan.peak_bytes, least);
  EXPECT_THAT(plan.describe(), HasSubstr("operations: F_checkpoint(0) F_nothing(1)"));
  // Without nesting the inputs of all twelve blocks stay.
  MemoryPlanOptions once = with("recompute", least);
  once.can_nest = false;
  EXPECT_THAT(refusal(chain, once), HasSubstr("the least that works is"));
  EXPECT_LT(least, 12 * 10);
}

TEST(MemoryPlan, IsNeverSlowerWithALargerBudget) {
  std::mt19937 random(7);
  for (int round = 0; round < 4; ++round) {
    Chain chain = random_chain(random, 16);
    for (BlockMemory& block : chain) {
      block.inner_bytes *= 1'000'003;
      block.input_bytes *= 1'000'003;
      block.output_bytes *= 1'000'003;
    }
    const int64_t most = plan_memory(chain, with("none", 0)).peak_bytes;
    double before = kNever;
    for (int percent = 10; percent <= 100; percent += 9) {
      const double seconds = seconds_of(chain, with("recompute", most / 100 * percent));
      EXPECT_LE(seconds, before) << percent;
      before = seconds;
    }
    EXPECT_EQ(seconds_of(chain, with("recompute", most)),
              plan_memory(chain, with("none", 0)).seconds);
  }
}

TEST(MemoryPlan, HidesCopiesBehindTheComputation) {
  MemoryPlanOptions options = with("auto", 0);
  options.out_bytes_per_second = options.in_bytes_per_second = 50;  // A block's bytes in a second.
  const Chain chain = equal_chain(8);
  options.budget_bytes = plan_memory(chain, with("none", 0)).peak_bytes / 2;
  const MemoryPlan plan = plan_memory(chain, options);
  check(plan);
  EXPECT_THAT(decisions_of(plan), testing::Contains(D::swap));
  EXPECT_NEAR(plan.slowdown(), 1, 0.02) << plan.describe();
  options.out_bytes_per_second = options.in_bytes_per_second = 0.1;
  const MemoryPlan slow = plan_memory(chain, options);
  EXPECT_THAT(decisions_of(slow), testing::Not(testing::Contains(D::swap)));
}

// Three blocks of 40 inner bytes and 10 between them. A fourth of the first block's inner bytes is
// in small storages, and its input is too small.
TEST(MemoryPlan, LeavesSmallStoragesWhereTheyAre) {
  MemoryPlanOptions options = with("none", 0);
  options.out_bytes_per_second = options.in_bytes_per_second = 1e9;
  options.counts_gradients = false;
  options.rules = {{"layer0", D::swap}, {"layer1", D::swap}};
  Chain chain = equal_chain(3);
  const int64_t moved = plan_memory(chain, options).peak_bytes;
  chain[0].still_bytes = chain[0].inner_bytes / 4;
  const MemoryPlan plan = plan_memory(chain, options);
  check(plan);
  EXPECT_EQ(plan.peak_bytes, moved + chain[0].still_bytes);
  options.least_moved_bytes = chain[1].input_bytes + 1;
  const MemoryPlan still = plan_memory(chain, options);
  check(still);
  EXPECT_EQ(still.peak_bytes, plan.peak_bytes + chain[0].input_bytes);
}

TEST(MemoryPlan, SaysWhenActivationsMayBeReadBack) {
  MemoryPlanOptions options = with("none", 0);
  options.out_bytes_per_second = options.in_bytes_per_second = 1e9;
  options.rules = {{"layer0", D::swap}, {"layer1", D::swap}};
  EXPECT_THAT(plan_memory(equal_chain(4), options).read_from(), ElementsAre(3, 3, 3, 3));
  // The second forward of layer2 needs the memory that became free before.
  options.rules.push_back({"layer2", D::recompute});
  EXPECT_THAT(plan_memory(equal_chain(4), options).read_from(), ElementsAre(1, 2, 2, 3));
}

// The step's time and peak by hand: two blocks, of which the first one is swapped.
TEST(MemoryPlan, CountsTheTimeThatCopiesTake) {
  MemoryPlanOptions options = with("swap", 0);
  options.out_bytes_per_second = 10;  // 50 bytes take 5 s: 4 s longer than the next forward.
  options.in_bytes_per_second = 20;   // 2.5 s, where the backward beside it takes 2 s.
  const MemoryPlan plan = plan_memory(equal_chain(2), options);
  check(plan);
  EXPECT_EQ(operations_text(plan),
            "F_all(0) swap_out(0) F_all(1) wait_out(0) loss swap_in(0) B(1) wait_in(0) B(0)");
  EXPECT_DOUBLE_EQ(plan.waiting_seconds, 4.5);
  EXPECT_DOUBLE_EQ(plan.seconds, 2 * 3 + 4.5);
}

// Every decision for each block, and all times of each copy.
double fastest_swap(const Chain& chain, MemoryPlanOptions options) {
  const MemoryChain facts(chain, options);
  const size_t blocks = chain.size();
  double best = kNever;
  std::vector<int> code(blocks, 0);
  const auto simulate_code = [&] {
    std::vector<std::vector<MemoryOperation>> out(blocks + 1), in(blocks);
    for (size_t i = 0; i < blocks; ++i) {
      if (code[i] < 2) continue;
      const size_t times = static_cast<size_t>(code[i] - 2);
      const size_t outs = blocks - i, from = i + times / outs, to = i + 1 + times % outs;
      out[to].push_back({MemoryOperation::Kind::wait_out, static_cast<int>(i)});
      in[from].insert(in[from].begin(), {MemoryOperation::Kind::swap_in, static_cast<int>(i)});
    }
    using Kind = MemoryOperation::Kind;
    std::vector<MemoryOperation> operations;
    for (size_t i = 0; i <= blocks; ++i) {
      operations.insert(operations.end(), out[i].begin(), out[i].end());
      const int b = static_cast<int>(i);
      if (i == blocks) operations.push_back({Kind::loss, -1});
      if (i == blocks) break;
      operations.push_back({code[i] == 1 ? Kind::forward_checkpoint : Kind::forward_all, b});
      if (code[i] > 1) operations.push_back({Kind::swap_out, b});
    }
    for (size_t i = blocks; i-- > 0;) {
      operations.insert(operations.end(), in[i].begin(), in[i].end());
      const int b = static_cast<int>(i);
      if (code[i] == 1) operations.push_back({Kind::forward_all, b});
      if (code[i] > 1) operations.push_back({Kind::wait_in, b});
      operations.push_back({Kind::backward, b});
    }
    const MemoryUse use = simulate(facts, operations);
    if (use.peak_bytes <= options.budget_bytes) best = std::min(best, use.seconds);
  };
  const auto fill = [&](auto& self, size_t i) -> void {
    if (i == blocks) return simulate_code();
    const int swaps = static_cast<int>((blocks - i) * (blocks - i));
    for (code[i] = 0; code[i] < 2 + swaps; ++code[i]) self(self, i + 1);
  };
  fill(fill, 0);
  return best;
}

TEST(MemoryPlan, IsCloseToTheBestOfAllSwaps) {
  std::mt19937 random(11);
  double worst = 1, sum = 0;
  int cases = 0;
  for (int round = 0; round < 60; ++round) {
    const Chain chain = random_chain(random, 3);
    MemoryPlanOptions options = with("auto", 1);
    options.can_nest = false;
    options.out_bytes_per_second = 1 + static_cast<double>(random() % 8);
    options.in_bytes_per_second = 1 + static_cast<double>(random() % 8);
    const int64_t most = plan_memory(chain, with("none", 0)).peak_bytes;
    for (int64_t budget = most / 2; budget < most; budget += 1 + most / 6) {
      options.budget_bytes = budget;
      const double best = fastest_swap(chain, options), planned = seconds_of(chain, options);
      if (best == kNever || planned == kNever) continue;
      EXPECT_GE(planned, best * (1 - 1e-9));
      worst = std::max(worst, planned / best);
      sum += planned / best;
      ++cases;
    }
  }
  EXPECT_LE(worst, 1.10);
  EXPECT_LE(sum / cases, 1.005);
}

TEST(MemoryPlan, IsNoSlowerWithSwappingThanWithout) {
  std::mt19937 random(13);
  for (int round = 0; round < 8; ++round) {
    const Chain chain = random_chain(random, 16);
    const int64_t most = plan_memory(chain, with("none", 0)).peak_bytes;
    MemoryPlanOptions options = with("auto", 0);
    options.out_bytes_per_second = options.in_bytes_per_second = 3;
    for (const int64_t budget : {most * 6 / 10, most * 8 / 10}) {
      options.budget_bytes = budget;
      EXPECT_LE(seconds_of(chain, options), seconds_of(chain, with("recompute", budget)));
    }
  }
}

TEST(MemoryPlan, FollowsTheLastRuleThatMatches) {
  MemoryPlanOptions options = with("none", 0);
  options.rules = {{"layer*", D::recompute}, {"*1", D::keep}};
  options.rules.push_back({"*r*2", D::compress});
  options.compressed_fraction = 0.5;
  const MemoryPlan plan = plan_memory(equal_chain(3), options);
  check(plan);
  EXPECT_THAT(decisions_of(plan), ElementsAre(D::recompute, D::keep, D::compress));
  EXPECT_THAT(plan.describe(), HasSubstr("layer2  compress"));
  EXPECT_EQ(plan.to_json()["blocks"][0]["decision"], "recompute");
}

TEST(MemoryPlan, CompressesByARuleAlone) {
  const std::vector<BlockMemory> chain = equal_chain(4);
  const auto compressed = [&](const MemoryPlanOptions& options) {
    const MemoryPlan plan = plan_memory(chain, options);
    check(plan);
    return std::ranges::count(decisions_of(plan), D::compress);
  };
  MemoryPlanOptions options =
      with("auto", plan_memory(chain, with("none", 0)).peak_bytes * 6 / 10);
  options.compressed_fraction = 0.5;  // It takes no time, so `auto` prefers it.
  EXPECT_GT(compressed(options), 0);
  options.compresses_by_rule_only = true;
  EXPECT_EQ(compressed(options), 0);
  options.rules = {{"layer2", D::compress}};
  EXPECT_EQ(compressed(options), 1);
}

TEST(MemoryPlan, ComparesNamesWithPatterns) {
  EXPECT_TRUE(matches({"*", D::keep}, ""));
  EXPECT_TRUE(matches({"a*b*c", D::keep}, "abbcbc"));
  EXPECT_TRUE(matches({"a**", D::keep}, "a"));
  EXPECT_FALSE(matches({"a*b", D::keep}, "abc"));
  EXPECT_FALSE(matches({"", D::keep}, "a"));
  EXPECT_FALSE(matches({"layer1", D::keep}, "layer12"));
}

TEST(MemoryPlan, RefusesWrongOptionsByTheirValues) {
  const Chain chain = equal_chain(3);
  EXPECT_THAT(refusal(chain, with("swop", 0)), HasSubstr("memory.policy is 'swop'"));
  EXPECT_THAT(refusal(chain, with("auto", -5)), HasSubstr("memory.budget is -5 bytes"));
  EXPECT_THAT(refusal(chain, with("swap", 0)), HasSubstr("no bandwidth of swapping"));
  EXPECT_THAT(refusal({}, with("none", 0)), HasSubstr("no blocks"));
  MemoryPlanOptions options = with("none", 0);
  options.rules = {{"layre1", D::keep}};
  EXPECT_THAT(refusal(chain, options),
              HasSubstr("no block matches 'layre1'; the nearest is 'layer1'"));
  options.rules = {{"*", D::swap}};
  EXPECT_THAT(refusal(chain, options), HasSubstr("a rule swaps '*'"));
  options.rules = {{"*", D::compress}};
  EXPECT_THAT(refusal(chain, options), HasSubstr("a rule compresses '*'"));
  options = with("auto", 0);
  options.compressed_fraction = 1.5;
  EXPECT_THAT(refusal(chain, options), HasSubstr("leaves 1.5 of each byte"));
  Chain wrong = chain;
  wrong[1].inner_bytes = -1;
  EXPECT_THAT(refusal(wrong, with("none", 0)), HasSubstr("'layer1' takes -1 bytes"));
  wrong = chain;
  wrong[2].forward_seconds = std::nan("");
  EXPECT_THAT(refusal(wrong, with("none", 0)), HasSubstr("'layer2' takes nan s"));
}

TEST(MemoryPlan, SaysTheLeastBudgetThatWorks) {
  EXPECT_THAT(refusal(equal_chain(3), with("none", 100)),
              AllOf(HasSubstr("memory.policy=none keeps the budget of 100 B"),
                    HasSubstr("least that works is 180 B"),
                    HasSubstr("try: memory.budget=180, or memory.policy=auto")));
}

TEST(MemoryPlan, CheckFindsWhatCannotRun) {
  const auto flaw = [](const std::function<void(MemoryPlan&)>& change) {
    MemoryPlan plan = plan_memory(equal_chain(3), with("recompute", 130));
    check(plan);
    change(plan);
    return message_of(ErrorCode::internal, [&] { check(plan); });
  };
  const auto operation = [](MemoryOperation::Kind kind, int block) {
    return MemoryOperation{kind, block};
  };
  using Kind = MemoryOperation::Kind;
  EXPECT_THAT(flaw([](MemoryPlan& p) { p.operations.pop_back(); }), HasSubstr("its backward"));
  EXPECT_THAT(flaw([](MemoryPlan& p) { std::swap(p.operations[0], p.operations[1]); }),
              HasSubstr("its input is not there"));
  EXPECT_THAT(flaw([&](MemoryPlan& p) { p.operations[0] = operation(Kind::forward_nothing, 0); }),
              HasSubstr("(0): its input is not there"));
  EXPECT_THAT(flaw([&](MemoryPlan& p) { p.operations.push_back(operation(Kind::backward, 7)); }),
              HasSubstr("B(7): there is no such block"));
  EXPECT_THAT(flaw([&](MemoryPlan& p) {
                p.operations.insert(p.operations.begin() + 1, operation(Kind::wait_in, 0));
              }),
              HasSubstr("wait_in(0): no copy back has begun"));
  EXPECT_THAT(flaw([](MemoryPlan& p) { p.options.budget_bytes = 50; }),
              HasSubstr("and the budget 50"));
  EXPECT_THAT(flaw([](MemoryPlan& p) { p.seconds *= 2; }), HasSubstr("are predicted"));
}

// docs/memory.md shows it.
TEST(MemoryPlan, MixesDecisionsWithinTheBudget) {
  std::vector<BlockMemory> blocks = {{"embedding", 0.001, 0.002, 4 << 20, 0, 4 << 20}};
  for (int i = 0; i < 4; ++i)
    blocks.push_back({"block" + std::to_string(i), 0.010, 0.020, 60 << 20, 4 << 20, 4 << 20});
  blocks.push_back({"head", 0.012, 0.024, 80 << 20, 4 << 20, 40 << 20});

  MemoryPlanOptions options;
  options.policy = "auto";
  options.budget_bytes = 270 << 20;
  options.out_bytes_per_second = options.in_bytes_per_second = 2e9;
  options.rules = {{"embedding*", MemoryDecision::keep}};
  const MemoryPlan plan = plan_memory(blocks, options);
  check(plan);
  EXPECT_EQ(plan.describe(),
            "memory: policy auto, budget 283.1 MB: peak 276.8 MB, 448.8 MB if all is kept, "
            "1.126x its time\n"
            "     0  embedding  keep       input      0 B  inner   4.2 MB  forward 1.000 ms\n"
            "     1  block0     swap       input   4.2 MB  inner  62.9 MB  forward 10.000 ms\n"
            "     2  block1     keep       input   4.2 MB  inner  62.9 MB  forward 10.000 ms\n"
            "     3  block2     recompute  input   4.2 MB  inner  62.9 MB  forward 10.000 ms x 2\n"
            "     4  block3     recompute  input   4.2 MB  inner  62.9 MB  forward 10.000 ms x 2\n"
            "     5  head       keep       input   4.2 MB  inner  83.9 MB  forward 12.000 ms\n");
}

TEST(MemoryPlan, IsPrinted) {
  const MemoryPlan plan = plan_memory(equal_chain(3), with("recompute", 120));
  EXPECT_THAT(plan.describe(), AllOf(HasSubstr("policy recompute, budget 120 B"),
                                     HasSubstr("layer0  recompute"), HasSubstr("ms x 2")));
  const Json json = plan.to_json();
  EXPECT_EQ(json["peak_bytes"], plan.peak_bytes);
  EXPECT_EQ(json["operations"][0], "F_checkpoint(0)");
}

}  // namespace
}  // namespace trireme::plan::memory_plan_test
