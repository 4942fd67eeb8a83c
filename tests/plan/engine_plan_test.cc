#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/hash.h>
#include <trireme/plan/data_parallel_plan.h>
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <numeric>

#include "../base/expect_error.h"
#include "placements.h"

namespace trireme::plan::engine_plan_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

// With buckets of 200 bytes, bucket 0 has b2, w2 and b1 (43 elements), and bucket 1 has w1 (80).
DataParallelFacts facts_on(const Placement& placement) {
  DataParallelFacts facts;
  facts.placement = placement;
  facts.parameters = {{"w1", {8, 10}}, {"b1", {10}}, {"w2", {10, 3}}, {"b2", {3}}};
  facts.state_tensors = {1, 1, 1, 1};
  facts.share_parameters = true;
  facts.buckets = {.capacity_bytes = 200, .first_bytes = 200};
  return facts;
}

template <typename Change>
DataParallelFacts facts_on(const Placement& placement, Change change) {
  DataParallelFacts facts = facts_on(placement);
  change(facts);
  return facts;
}

std::vector<std::string> titles_of(const EnginePlan& plan) {
  std::vector<std::string> titles;
  for (const Operation& operation : plan.operations)
    titles.push_back(operation.name + " over " + operation.path + ": " + operation.content);
  return titles;
}

const Operation& operation_of(const EnginePlan& plan, const std::string& content) {
  for (const Operation& operation : plan.operations)
    if (operation.content == content) return operation;
  ADD_FAILURE() << "no operation has the content " << content << "\n" << plan.describe();
  static const Operation none{.operations = std::vector<int64_t>(64, -1),
                              .bytes_sent = std::vector<int64_t>(64, -1)};
  return none;
}

// The bytes that each of `ranks` sends in an all-reduce of a backend that has its own algorithm.
int64_t ring_bytes(int64_t bytes, int64_t ranks) { return 2 * (ranks - 1) * bytes / ranks; }

struct Situation {
  std::string what;
  DataParallelFacts facts;
  ExchangeKind exchange;
};

// Every exchange, and the facts on both sides of each choice between them.
std::vector<Situation> situations() {
  const Placement alone = each_alone(1, "gloo"), threads = on_one_host(4, "threads"),
                  shm = on_one_host(2, "shm"), apart = each_alone(3, "gloo"),
                  tcp = each_alone(3, "tcp"), hosts = on_hosts({2, 1}, "shm", "gloo");
  const auto without_sharing = [](DataParallelFacts& facts) { facts.share_parameters = false; };
  const auto unknown_optimizer = [](DataParallelFacts& facts) { facts.state_tensors.clear(); };
  const auto left = [](DataParallelFacts& facts) {
    facts.share_parameters = false;
    facts.leaves_means = true;
  };
  const auto left_compressed = [left](DataParallelFacts& facts) {
    left(facts);
    facts.compression.name = "int8";
  };
  const auto compressed = [](DataParallelFacts& facts) { facts.compression.name = "int8"; };
  const auto local = [](DataParallelFacts& facts) { facts.local.steps = 4; };
  const auto shards = [](DataParallelFacts& facts) { facts.virtual_shards = 8; };
  using enum ExchangeKind;
  return {
      {"one rank", facts_on(alone), all_reduce},
      {"threads", facts_on(threads), shared},
      {"processes of one host", facts_on(shm), shared},
      {"sharing is not wanted", facts_on(shm, without_sharing), all_reduce},
      {"the optimizer cannot share", facts_on(shm, unknown_optimizer), all_reduce},
      {"each rank has a host, gloo", facts_on(apart), all_reduce},
      {"each rank has a host, tcp", facts_on(tcp), all_reduce},
      {"some ranks share a host", facts_on(hosts), shared},
      {"some ranks share a host, and sharing is not wanted", facts_on(hosts, without_sharing),
       all_reduce},
      {"means are left to one rank", facts_on(alone, left), all_reduce},
      {"means are left on one host", facts_on(shm, left), host_means},
      {"means are left on two hosts", facts_on(hosts, left), all_reduce},
      {"compressed means are left", facts_on(shm, left_compressed), all_reduce},
      {"compression on one rank", facts_on(alone, compressed), all_reduce},
      {"compression on one host", facts_on(shm, compressed), all_reduce},
      {"compression between hosts", facts_on(hosts, compressed), shared},
      {"compression between ranks", facts_on(apart, compressed), all_reduce},
      {"local steps of one rank", facts_on(alone, local), all_reduce},
      {"local steps on one host", facts_on(threads, local), local_steps},
      {"local steps on two hosts", facts_on(hosts, local), local_steps},
      {"local steps of ranks apart", facts_on(apart, local), local_steps},
      {"virtual shards of one rank", facts_on(alone, shards), reproducible},
      {"virtual shards on one host", facts_on(threads, shards), reproducible},
      {"virtual shards on two hosts", facts_on(hosts, shards), reproducible},
      {"virtual shards of ranks apart", facts_on(tcp, shards), reproducible},
  };
}

TEST(DataParallelPlan, ChoosesTheExchangeByTheFacts) {
  for (const auto& [what, facts, exchange] : situations())
    EXPECT_EQ(to_string(plan_data_parallel(facts).exchange), to_string(exchange)) << what;
}

TEST(DataParallelPlan, IsAcceptedByTheCheckerInEachSituation) {
  for (const auto& [what, facts, exchange] : situations()) {
    EXPECT_NO_THROW(check(plan_data_parallel(facts))) << what;
    DataParallelFacts with_data = facts;
    with_data.data = DataPlanOptions{.samples = 100, .batch = 32};
    EXPECT_NO_THROW(check(plan_data_parallel(with_data))) << what;
  }
}

TEST(DataParallelPlan, HasThePartsOfItsExchange) {
  for (const auto& [what, facts, exchange] : situations()) {
    const EnginePlan plan = plan_data_parallel(facts);
    const int ranks = facts.placement.ranks();
    const bool shares = exchange == ExchangeKind::shared,
               leaves = exchange == ExchangeKind::host_means,
               reproduces = exchange == ExchangeKind::reproducible;
    EXPECT_EQ(plan.mesh.world_size(), ranks) << what;
    EXPECT_EQ(plan.ranks(), ranks) << what;
    EXPECT_EQ(plan.layout.has_value(), shares || leaves) << what;
    EXPECT_EQ(plan.shard_tree.has_value(), reproduces) << what;
    EXPECT_EQ(plan.ranges.size(), reproduces ? plan.buckets.buckets.size() : 0U) << what;
    EXPECT_EQ(plan.shards.teams.size(),
              static_cast<size_t>(shares ? facts.placement.host_count() : ranks))
        << what;
    EXPECT_EQ(plan.messages.empty(), ranks == 1 || shares || leaves || reproduces) << what;
    EXPECT_EQ(plan.operations.empty(),
              ranks == 1 || leaves || (shares && !facts.placement.between))
        << what;
    EXPECT_EQ(plan.facts, facts_of_step(ranks, 4)) << what;
    EXPECT_EQ(plan.compression, facts.compression.name) << what;
    EXPECT_TRUE(plan.knows_all_operations) << what;
  }
}

TEST(DataParallelPlan, SendsAFewFactsFourForEachRankAndOneForEachParameter) {
  EXPECT_EQ(facts_of_step(1, 0), 6 + 5);
  EXPECT_EQ(facts_of_step(3, 4), 6 + 15 + 4);
}

TEST(DataParallelPlan, NamesEachExchange) {
  EXPECT_EQ(to_string(ExchangeKind::all_reduce), "all_reduce");
  EXPECT_EQ(to_string(ExchangeKind::shared), "shared");
  EXPECT_EQ(to_string(ExchangeKind::host_means), "host_means");
  EXPECT_EQ(to_string(ExchangeKind::reproducible), "reproducible");
  EXPECT_EQ(to_string(ExchangeKind::local_steps), "local_steps");
  EXPECT_EQ(to_string(ExchangeKind::own), "own");
}

TEST(DataParallelPlan, FollowsTheReadyOrderOnlyWhereAllReducesRunInTheBackground) {
  const auto follows = [](const DataParallelFacts& facts) {
    const EnginePlan plan = plan_data_parallel(facts);
    const auto is_order = [](const Operation& operation) {
      return operation.content == "order of gradients";
    };
    EXPECT_EQ(plan.follows_ready_order,
              std::any_of(plan.operations.begin(), plan.operations.end(), is_order));
    return plan.follows_ready_order;
  };
  const auto without_sharing = [](DataParallelFacts& facts) { facts.share_parameters = false; };
  for (const char* path : {"tcp", "gloo", "mpi"})
    EXPECT_TRUE(follows(facts_on(each_alone(2, path)))) << path;
  for (const char* path : {"threads", "shm"})
    EXPECT_FALSE(follows(facts_on(on_one_host(2, path), without_sharing))) << path;
  EXPECT_FALSE(follows(facts_on(on_hosts({2, 1}, "shm", "gloo"), without_sharing)))
      << "the ranks of a host act first";
  EXPECT_FALSE(follows(facts_on(each_alone(1, "gloo"))));
  EXPECT_FALSE(follows(facts_on(on_hosts({2, 1}, "shm", "gloo"))));

  const Placement apart = each_alone(2, "gloo");
  EXPECT_TRUE(follows(facts_on(apart, [](auto& facts) { facts.compression.name = "topk"; })));
  EXPECT_FALSE(follows(facts_on(apart, [](auto& facts) { facts.virtual_shards = 4; })));
  EXPECT_FALSE(follows(facts_on(apart, [](auto& facts) { facts.local.steps = 4; })));
  EXPECT_TRUE(follows(facts_on(apart, [](auto& facts) { facts.local = {4, 10, false}; })))
      << "gradients are reduced in the first 10 steps";
}

TEST(DataParallelPlan, SendsTheFactsBehindTheLastBucket) {
  const EnginePlan plan = plan_data_parallel(facts_on(each_alone(2, "gloo")));
  const int64_t facts = facts_of_step(2, 4);
  ASSERT_EQ(plan.messages.size(), 2U);
  EXPECT_EQ(plan.messages[0].bucket, 0);
  EXPECT_EQ(plan.messages[0].elements, 43);
  EXPECT_EQ(plan.messages[0].facts, 0);
  EXPECT_EQ(plan.messages[1].bucket, 1);
  EXPECT_EQ(plan.messages[1].elements, 80 + facts);
  EXPECT_EQ(plan.messages[1].facts, facts);
  EXPECT_THAT(titles_of(plan),
              ElementsAre("broadcast over gloo: order of gradients",
                          "all_reduce over gloo: gradients of bucket 0",
                          "all_reduce over gloo: gradients of bucket 1, and facts"));
  EXPECT_EQ(plan.operations[0].dtype, DType::int64);
  EXPECT_EQ(plan.operations[0].elements, 4);
  EXPECT_EQ(plan.operations[0].steps, (Steps{1, 1, 1}));
  EXPECT_EQ(plan.operations[2].elements, 80 + facts);
  EXPECT_EQ(plan.bytes_sent_by(0, 1), 4 * 8 + (43 + 80 + facts) * 4);
  EXPECT_EQ(plan.bytes_sent_by(1, 1), (43 + 80 + facts) * 4);
}

TEST(DataParallelPlan, SendsTheFactsApartIfTheLastBucketCannotCountThem) {
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    const EnginePlan plan =
        plan_data_parallel(facts_on(each_alone(2, "tcp"), [&](DataParallelFacts& facts) {
          facts.parameters[0].dtype = dtype;
        }));
    ASSERT_EQ(plan.messages.size(), 3U);
    EXPECT_EQ(plan.messages[1].dtype, dtype);
    EXPECT_EQ(plan.messages[1].facts, 0);
    EXPECT_EQ(plan.messages[2].bucket, -1);
    EXPECT_EQ(plan.messages[2].dtype, DType::float32);
    EXPECT_EQ(plan.messages[2].facts, plan.facts);
    EXPECT_EQ(plan.messages[2].elements, plan.facts);
    EXPECT_EQ(operation_of(plan, "facts of the step").elements, plan.facts);
    EXPECT_NO_THROW(check(plan));
  }
}

TEST(DataParallelPlan, SendsTheFactsBehindTheLastBucketAlsoIfAnotherIsInHalfPrecision) {
  const EnginePlan plan =
      plan_data_parallel(facts_on(each_alone(2, "tcp"), [](DataParallelFacts& facts) {
        facts.parameters[3].dtype = DType::bfloat16;
      }));
  EXPECT_EQ(plan.messages.front().dtype, DType::bfloat16);
  EXPECT_EQ(plan.messages.back().dtype, DType::float32);
  EXPECT_EQ(plan.messages.back().facts, plan.facts);
  EXPECT_GE(plan.messages.back().bucket, 0);
}

TEST(DataParallelPlan, SendsTheFactsInDoublePrecisionBehindSuchABucket) {
  const EnginePlan plan =
      plan_data_parallel(facts_on(each_alone(2, "tcp"), [](DataParallelFacts& facts) {
        facts.parameters[0].dtype = DType::float64;
      }));
  EXPECT_EQ(plan.messages.back().dtype, DType::float64);
  EXPECT_EQ(plan.messages.back().elements, 80 + plan.facts);
}

TEST(DataParallelPlan, SendsTheFactsApartWithCompression) {
  const EnginePlan plan = plan_data_parallel(facts_on(
      each_alone(2, "gloo"), [](DataParallelFacts& facts) { facts.compression.name = "bf16"; }));
  ASSERT_EQ(plan.messages.size(), 3U);
  EXPECT_EQ(plan.messages[0].facts + plan.messages[1].facts, 0);
  EXPECT_EQ(plan.messages[2].bucket, -1);
  EXPECT_EQ(plan.messages[2].dtype, DType::float64);
  EXPECT_EQ(operation_of(plan, "facts of the step").dtype, DType::float64);
  EXPECT_EQ(operation_of(plan, "facts of the step").elements, plan.facts);
}

TEST(DataParallelPlan, SendsOnlyFactsIfNothingIsTrainable) {
  const auto freeze = [](DataParallelFacts& facts) {
    for (TensorSpec& spec : facts.parameters) spec.trainable = false;
  };
  const EnginePlan plan = plan_data_parallel(facts_on(each_alone(2, "gloo"), freeze));
  EXPECT_THAT(plan.buckets.buckets, IsEmpty());
  ASSERT_EQ(plan.messages.size(), 1U);
  EXPECT_EQ(plan.messages[0].bucket, -1);
  EXPECT_EQ(plan.messages[0].facts, plan.facts);
  EXPECT_NO_THROW(check(plan));
}

TEST(DataParallelPlan, ReducesInTwoLevelsIfSomeRanksShareAHostButNotTheirCopy) {
  const EnginePlan plan =
      plan_data_parallel(facts_on(on_hosts({2, 1}, "shm", "gloo"), [](DataParallelFacts& facts) {
        facts.share_parameters = false;
      }));
  EXPECT_THAT(titles_of(plan),
              ElementsAre("all_reduce over shm: gradients of bucket 0, on a host",
                          "all_reduce over gloo: gradients of bucket 0, between hosts",
                          "broadcast over shm: gradients of bucket 0, on a host",
                          "all_reduce over shm: gradients of bucket 1, and facts, on a host",
                          "all_reduce over gloo: gradients of bucket 1, and facts, between hosts",
                          "broadcast over shm: gradients of bucket 1, and facts, on a host"));
}

TEST(DataParallelPlan, SendsNothingIfAllRanksShareOneCopy) {
  const EnginePlan plan = plan_data_parallel(facts_on(on_one_host(3, "threads")));
  EXPECT_THAT(plan.operations, IsEmpty());
  EXPECT_EQ(plan.bytes_sent_by(1, 100), 0);
  EXPECT_EQ(plan.operations_of(1, 100), 0);
  EXPECT_THAT(plan.describe(), HasSubstr("operations of a step: none"));
}

TEST(DataParallelPlan, LetsOnlyTheFirstRankOfEachHostSendIfTheRanksOfAHostShareOneCopy) {
  const EnginePlan plan = plan_data_parallel(facts_on(on_hosts({2, 3, 1}, "threads", "gloo")));
  EXPECT_THAT(titles_of(plan), ElementsAre("all_reduce over gloo: gradients of bucket 0",
                                           "all_reduce over gloo: gradients of bucket 1",
                                           "all_reduce over gloo: facts of the step"));
  for (const Operation& operation : plan.operations)
    EXPECT_THAT(operation.operations, ElementsAre(1, 0, 1, 0, 0, 1)) << operation.content;
  const int64_t bytes =
      ring_bytes(43 * 4, 3) + ring_bytes(80 * 4, 3) + ring_bytes(facts_of_step(6, 4) * 8, 3);
  for (const int rank : {0, 2, 5}) {
    EXPECT_EQ(plan.bytes_sent_by(rank, 10), 10 * bytes);
    EXPECT_EQ(plan.operations_of(rank, 10), 30);
  }
  for (const int rank : {1, 3, 4}) {
    EXPECT_EQ(plan.bytes_sent_by(rank, 10), 0);
    EXPECT_EQ(plan.operations_of(rank, 10), 0);
  }
}

TEST(DataParallelPlan, CompressesBetweenTheFirstRanksOfHosts) {
  const EnginePlan plan = plan_data_parallel(
      facts_on(on_hosts({2, 3}, "threads", "gloo"),
               [](DataParallelFacts& facts) { facts.compression.name = "int8"; }));
  EXPECT_THAT(titles_of(plan), ElementsAre("send over gloo: gradients of bucket 0",
                                           "send over gloo: gradients of bucket 1",
                                           "all_reduce over gloo: facts of the step"));
  const Operation& bucket = operation_of(plan, "gradients of bucket 0");
  EXPECT_THAT(bucket.operations, ElementsAre(2, 0, 2, 0, 0));
  EXPECT_THAT(bucket.bytes_sent, ElementsAre(2 * 260, 0, 2 * 260, 0, 0));
}

TEST(DataParallelPlan, SendsEachQuantisedChunkThereAndTheSumBack) {
  const EnginePlan plan = plan_data_parallel(facts_on(
      each_alone(3, "tcp"), [](DataParallelFacts& facts) { facts.compression.name = "bf16"; }));
  // The 80 elements of bucket 1 make chunks of 27.
  const Operation& bucket = operation_of(plan, "gradients of bucket 1");
  EXPECT_EQ(bucket.name, "send");
  EXPECT_THAT(bucket.operations, Each(2 * 2));
  EXPECT_THAT(bucket.bytes_sent, Each(2 * 2 * 27 * 2));
}

TEST(DataParallelPlan, SendsAPieceOfALongChunkAtATime) {
  const EnginePlan plan =
      plan_data_parallel(facts_on(each_alone(2, "gloo"), [](DataParallelFacts& facts) {
        facts.parameters = {{"w", {600000}}};
        facts.state_tensors = {1};
        facts.compression.name = "bf16";
      }));
  const Operation& bucket = operation_of(plan, "gradients of bucket 0");
  EXPECT_THAT(bucket.operations, Each(2 * 3)) << "a chunk of 300000 in pieces of 131072";
  EXPECT_THAT(bucket.bytes_sent, Each(2 * 300000 * 2));
}

TEST(DataParallelPlan, GathersTheLargestValuesAndTheirPlaces) {
  const EnginePlan plan =
      plan_data_parallel(facts_on(each_alone(3, "gloo"), [](DataParallelFacts& facts) {
        facts.compression = {.name = "topk", .ratio = 0.1};
      }));
  const Operation& bucket = operation_of(plan, "gradients of bucket 1");
  EXPECT_EQ(bucket.name, "all_gather");
  EXPECT_EQ(bucket.dtype, DType::int32);
  EXPECT_EQ(bucket.elements, 3 * 2 * 8);
  EXPECT_THAT(bucket.bytes_sent, Each(2 * 2 * 8 * 4));
}

TEST(DataParallelPlan, ReducesTheFactorsOfMatrices) {
  const EnginePlan plan =
      plan_data_parallel(facts_on(each_alone(2, "gloo"), [](DataParallelFacts& facts) {
        facts.compression = {.name = "powersgd", .rank = 1};
      }));
  // Bucket 0 has a matrix of 10 x 3 beside 13 elements of vectors, and bucket 1 one of 8 x 10.
  EXPECT_EQ(operation_of(plan, "gradients of bucket 0, P").elements, 10 + 13);
  EXPECT_EQ(operation_of(plan, "gradients of bucket 0, Q").elements, 3);
  EXPECT_EQ(operation_of(plan, "gradients of bucket 1, P").elements, 8);
  EXPECT_EQ(operation_of(plan, "gradients of bucket 1, Q").elements, 10);
  EXPECT_EQ(operation_of(plan, "gradients of bucket 1, Q").dtype, DType::float32);
}

TEST(DataParallelPlan, SendsNoFactorsOfABucketWithoutMatrices) {
  const EnginePlan plan =
      plan_data_parallel(facts_on(each_alone(2, "gloo"), [](DataParallelFacts& facts) {
        facts.parameters = {{"b", {7}}};
        facts.state_tensors = {1};
        facts.compression.name = "powersgd";
      }));
  EXPECT_THAT(titles_of(plan), ElementsAre("broadcast over gloo: order of gradients",
                                           "all_reduce over gloo: gradients of bucket 0, P",
                                           "all_reduce over gloo: facts of the step"));
}

TEST(DataParallelPlan, SaysThatItDoesNotKnowTheMessagesOfARegisteredCompressor) {
  const EnginePlan plan = plan_data_parallel(facts_on(
      each_alone(2, "gloo"), [](DataParallelFacts& facts) { facts.compression.name = "mine"; }));
  EXPECT_FALSE(plan.knows_all_operations);
  EXPECT_NO_THROW(check(plan));
  EXPECT_THAT(plan.describe(),
              HasSubstr("and others, which are not known: those of the compressor 'mine'"));
}

TEST(DataParallelPlan, SendsTheNodesOfVirtualShardsToTheRanksThatAddThemUp) {
  const EnginePlan plan =
      plan_data_parallel(facts_on(each_alone(2, "gloo"), [](DataParallelFacts& facts) {
        facts.parameters = {{"w", {100}}};
        facts.state_tensors = {1};
        facts.virtual_shards = 4;
      }));
  // Each rank has one node, of two shards. Rank 0 adds up elements 0 to 63, and rank 1 the rest.
  EXPECT_THAT(plan.ranges, ElementsAre(64));
  EXPECT_THAT(titles_of(plan), ElementsAre("all_reduce over gloo: facts of the step",
                                           "send over gloo: nodes of bucket 0",
                                           "all_gather over gloo: sums of bucket 0"));
  EXPECT_EQ(plan.operations[0].elements, facts_of_step(2, 1) + 4) << "a loss of each shard";
  EXPECT_THAT(plan.operations[1].operations, ElementsAre(1, 1));
  EXPECT_THAT(plan.operations[1].bytes_sent, ElementsAre(36 * 4, 64 * 4));
  EXPECT_EQ(plan.operations[2].elements, 128);
  EXPECT_THAT(plan.operations[2].bytes_sent, Each(64 * 4));
}

TEST(DataParallelPlan, SendsNothingForRanksWithoutVirtualShardsOrElements) {
  const EnginePlan plan =
      plan_data_parallel(facts_on(each_alone(3, "gloo"), [](DataParallelFacts& facts) {
        facts.parameters = {{"w", {17}}};
        facts.state_tensors = {1};
        facts.virtual_shards = 2;
      }));
  // Ranges have 16 elements: the last rank adds up none, and it has no shard either.
  EXPECT_THAT(plan.ranges, ElementsAre(16));
  const Operation& nodes = operation_of(plan, "nodes of bucket 0");
  EXPECT_THAT(nodes.operations, ElementsAre(1, 1, 0));
  EXPECT_THAT(nodes.bytes_sent, ElementsAre(1 * 4, 16 * 4, 0));
}

TEST(DataParallelPlan, RefusesVirtualShardsWithCompressionOrLocalSteps) {
  const auto refusal = [](auto change) {
    const DataParallelFacts facts = facts_on(on_one_host(2, "threads"), change);
    return message_of(ErrorCode::invalid_argument, [&] { plan_data_parallel(facts); });
  };
  EXPECT_THAT(refusal([](DataParallelFacts& facts) {
                facts.virtual_shards = 4;
                facts.compression.name = "int8";
              }),
              HasSubstr("4 virtual shards with compression int8"));
  EXPECT_THAT(refusal([](DataParallelFacts& facts) {
                facts.virtual_shards = 4;
                facts.local.steps = 3;
              }),
              HasSubstr("4 virtual shards with 3 local steps"));
}

TEST(DataParallelPlan, RefusesBucketsWithoutRoom) {
  DataParallelFacts facts = facts_on(on_one_host(2, "threads"));
  facts.buckets.capacity_bytes = 0;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { plan_data_parallel(facts); }),
              HasSubstr("capacity_bytes is 0"));
}

TEST(DataParallelPlan, CountsTheBytesOfTenStepsWithLocalStepsAsASumByHandDoes) {
  constexpr int kRanks = 3;
  DataParallelFacts facts;
  facts.placement = each_alone(kRanks, "gloo");
  facts.parameters = {{"w", {4, 5}},
                      {"b", {5}},
                      {"frozen", {7}, DType::float32, false},
                      {"d", {3}, DType::float64}};
  facts.state_tensors = {2, 2, 2, 1};
  facts.local = {.steps = 3, .after = 2, .momentum = true};
  const EnginePlan plan = plan_data_parallel(facts);
  EXPECT_NO_THROW(check(plan));

  const auto ring = [](int64_t bytes) { return ring_bytes(bytes, kRanks); };
  const int64_t step_facts = 6 + 5 * kRanks + 4;
  // Bucket 0 has d, and bucket 1 has b, w and the facts.
  const int64_t together = ring(3 * 8) + ring((5 + 20 + step_facts) * 4);
  const int64_t apart = ring(step_facts * 8);
  const int64_t parameters = ring(25 * 4) + ring(3 * 8);
  const int64_t state = ring(8) + ring(8) + ring(2 * 25 * 4) + ring(3 * 8);
  // Steps 1 and 2 reduce gradients. Steps 3 to 10 are apart, and end in an average after
  // steps 5 and 8.
  const int64_t sum = 2 * together + 8 * apart + 2 * (parameters + state);
  EXPECT_EQ(plan.bytes_sent_by(1, 10), sum);
  EXPECT_EQ(plan.bytes_sent_by(2, 10), sum);
  EXPECT_EQ(plan.bytes_sent_by(0, 10), sum + 3 * 8) << "rank 0 sends the order of 3 gradients";
  EXPECT_EQ(plan.operations_of(1, 10), 1 + 2 * 2 + 8 + 2 * (2 + 2 + 2));
  EXPECT_EQ(plan.bytes_sent_by(1, 11) - plan.bytes_sent_by(1, 10), apart + parameters + state);
  EXPECT_EQ(plan.bytes_sent_by(1, 0), 0);
}

TEST(DataParallelPlan, ReducesNoGradientsIfStepsAreLocalFromTheStart) {
  const EnginePlan plan =
      plan_data_parallel(facts_on(each_alone(2, "gloo"), [](DataParallelFacts& facts) {
        facts.local = {.steps = 4, .after = 0, .momentum = false};
      }));
  EXPECT_THAT(titles_of(plan), ElementsAre("all_reduce over gloo: facts of the step",
                                           "all_reduce over gloo: average of parameters"));
  EXPECT_EQ(plan.messages.size(), 2U) << "the exchange has room for them all the same";
}

TEST(DataParallelPlan, AveragesNoStateWithoutMomentum) {
  const EnginePlan plan =
      plan_data_parallel(facts_on(each_alone(2, "gloo"), [](DataParallelFacts& facts) {
        facts.local = {.steps = 4, .after = 0, .momentum = false};
      }));
  EXPECT_THAT(titles_of(plan), Each(Not(HasSubstr("state"))));
  // The facts travel in each step, and the 123 elements in every fourth one.
  EXPECT_EQ(plan.bytes_sent_by(0, 10), 10 * plan.facts * 8 + 2 * 123 * 4);
}

TEST(EnginePlan, DigestsEqualPlansEqually) {
  for (const auto& [what, facts, exchange] : situations()) {
    const EnginePlan plan = plan_data_parallel(facts), again = plan_data_parallel(facts);
    EXPECT_EQ(plan.digest(), again.digest()) << what;
    EXPECT_THAT(plan.digest(), MatchesRegex("[0-9a-f]{16}")) << what;
    EXPECT_EQ(plan.to_json().at("digest").get<std::string>(), plan.digest()) << what;
    EXPECT_THAT(plan.describe(), StartsWith("plan " + plan.digest() + ": data_parallel by " +
                                            std::string(to_string(exchange)) + "; "));
  }
}

TEST(EnginePlan, DigestsFactsThatDoNotMatterEqually) {
  // Ranks that share no memory cannot share parameters, wanted or not.
  DataParallelFacts facts = facts_on(each_alone(2, "gloo"));
  const std::string digest = plan_data_parallel(facts).digest();
  facts.share_parameters = false;
  EXPECT_EQ(plan_data_parallel(facts).digest(), digest);
}

TEST(EnginePlan, DigestsEachOtherFactDifferently) {
  const DataParallelFacts base = facts_on(each_alone(3, "tcp"), [](DataParallelFacts& facts) {
    facts.data = DataPlanOptions{.samples = 100, .batch = 32};
  });
  using Change = std::function<void(DataParallelFacts&)>;
  const auto on = [](Placement placement) {
    return [placement](DataParallelFacts& facts) { facts.placement = placement; };
  };
  const auto compression = [](CompressionOptions options) {
    return [options](DataParallelFacts& facts) { facts.compression = options; };
  };
  CollectiveTable ring;
  ring.always(Collective::all_reduce, Algorithm::ring);
  const std::vector<std::pair<std::string, Change>> changes = {
      {"larger buckets",
       [](auto& facts) { facts.buckets = {.capacity_bytes = 1000, .first_bytes = 1000}; }},
      {"a smaller first bucket", [](auto& facts) { facts.buckets.first_bytes = 20; }},
      {"a ready order", [](auto& facts) { facts.ready_order = {0, 1, 2, 3}; }},
      {"the shape of a parameter", [](auto& facts) { facts.parameters[0].shape = {10, 8}; }},
      {"the elements of a parameter", [](auto& facts) { facts.parameters[3].shape = {4}; }},
      {"the name of a parameter", [](auto& facts) { facts.parameters[0].name = "w9"; }},
      {"the type of a parameter", [](auto& facts) { facts.parameters[0].dtype = DType::float64; }},
      {"a frozen parameter", [](auto& facts) { facts.parameters[1].trainable = false; }},
      {"one parameter less",
       [](auto& facts) {
         facts.parameters.pop_back();
         facts.state_tensors.pop_back();
       }},
      {"the order of parameters",
       [](auto& facts) { std::swap(facts.parameters[0], facts.parameters[1]); }},
      {"four ranks", on(each_alone(4, "tcp"))},
      {"one rank", on(each_alone(1, "tcp"))},
      {"gloo", on(each_alone(3, "gloo"))},
      {"threads", on(on_one_host(3, "threads"))},
      {"processes", on(on_one_host(3, "shm"))},
      {"two hosts", on(on_hosts({2, 1}, "shm", "tcp"))},
      {"two hosts, the other way round", on(on_hosts({1, 2}, "shm", "tcp"))},
      {"two hosts over gloo", on(on_hosts({2, 1}, "shm", "gloo"))},
      {"another algorithm", on(each_alone(3, "tcp", ring))},
      {"bf16", compression({.name = "bf16"})},
      {"int8", compression({.name = "int8"})},
      {"topk", compression({.name = "topk"})},
      {"topk of more", compression({.name = "topk", .ratio = 0.5})},
      {"powersgd", compression({.name = "powersgd", .rank = 1})},
      {"powersgd of a higher rank", compression({.name = "powersgd", .rank = 2})},
      {"a registered compressor", compression({.name = "mine"})},
      {"another registered compressor", compression({.name = "yours"})},
      {"local steps", [](auto& facts) { facts.local = {4, 0, false}; }},
      {"more local steps", [](auto& facts) { facts.local = {5, 0, false}; }},
      {"later local steps", [](auto& facts) { facts.local = {4, 9, false}; }},
      {"local steps with momentum", [](auto& facts) { facts.local = {4, 0, true}; }},
      {"4 virtual shards", [](auto& facts) { facts.virtual_shards = 4; }},
      {"8 virtual shards", [](auto& facts) { facts.virtual_shards = 8; }},
      {"another batch", [](auto& facts) { facts.data->batch = 64; }},
      {"more samples", [](auto& facts) { facts.data->samples = 128; }},
      {"another seed", [](auto& facts) { facts.data->seed = 1; }},
      {"no shuffling", [](auto& facts) { facts.data->shuffle = false; }},
      {"batches in virtual shards", [](auto& facts) { facts.data->virtual_shards = 4; }},
      {"no data", [](auto& facts) { facts.data.reset(); }},
  };
  std::map<std::string, std::string> known = {{plan_data_parallel(base).digest(), "no change"}};
  for (const auto& [what, change] : changes) {
    DataParallelFacts facts = base;
    change(facts);
    const auto [found, is_new] = known.try_emplace(plan_data_parallel(facts).digest(), what);
    EXPECT_TRUE(is_new) << what << " has the digest of " << found->second;
  }
}

TEST(EnginePlan, GivesItsPartsAsJson) {
  const EnginePlan plan = plan_data_parallel(facts_on(on_one_host(2, "threads")));
  const Json json = plan.to_json();
  std::vector<std::string> names = {"digest"};
  for (const auto& [name, part] : plan.parts()) {
    names.push_back(name);
    EXPECT_EQ(json.at(name).dump(), part.dump()) << name;
  }
  std::vector<std::string> keys;
  for (const auto& item : json.items()) keys.push_back(item.key());
  EXPECT_EQ(keys, names);
  EXPECT_EQ(json.at("exchange").get<std::string>(), "shared");
  EXPECT_TRUE(json.at("data").is_null());
  EXPECT_EQ(json.at("parameters").at(0).dump(),
            R"({"name":"w1","shape":[8,10],"dtype":"float32"})");
}

TEST(EnginePlan, DescribesWhenOperationsTakePlace) {
  const EnginePlan plan =
      plan_data_parallel(facts_on(each_alone(2, "gloo"), [](DataParallelFacts& facts) {
        facts.local = {.steps = 3, .after = 2, .momentum = false};
      }));
  const std::string text = plan.describe();
  EXPECT_THAT(text, AllOf(HasSubstr("2 ranks on 2 hosts: gloo between"), HasSubstr("(step 1)"),
                          HasSubstr("(to step 2)"), HasSubstr("(from step 3)"),
                          HasSubstr("(every 3 steps, from step 3)")));
  EXPECT_THAT(text, HasSubstr("the buckets follow the order in which gradients became ready"));
}

TEST(EnginePlan, DescribesShardsBucketsAndVirtualShards) {
  const std::string shared = plan_data_parallel(facts_on(on_one_host(2, "threads"))).describe();
  EXPECT_THAT(shared, AllOf(HasSubstr("the ranks of a host update one copy of 123 elements"),
                            HasSubstr("2 gradient buckets, 492 B")));
  const std::string reproducible =
      plan_data_parallel(facts_on(each_alone(2, "tcp"), [](DataParallelFacts& facts) {
        facts.virtual_shards = 4;
      })).describe();
  EXPECT_THAT(reproducible, AllOf(HasSubstr("every rank updates its own copy of 123 elements"),
                                  HasSubstr("4 virtual shards, added up by a tree"),
                                  HasSubstr("send over tcp")));
}

class BrokenEnginePlan : public testing::Test {
 protected:
  EnginePlan plan = plan_data_parallel(facts_on(each_alone(2, "gloo")));

  std::string rejection() {
    return message_of(ErrorCode::internal, [&] { check(plan); });
  }
};

TEST_F(BrokenEnginePlan, IsAcceptedBeforeItIsBroken) { EXPECT_NO_THROW(check(plan)); }

TEST_F(BrokenEnginePlan, IsRejectedIfABucketDoesNotTravel) {
  plan.messages.erase(plan.messages.begin());
  EXPECT_THAT(rejection(), HasSubstr("bucket 0 travels 0 times in a step"));
}

TEST_F(BrokenEnginePlan, IsRejectedIfNoBucketTravels) {
  plan.messages.clear();
  EXPECT_THAT(rejection(), HasSubstr("bucket 0 travels 0 times in a step"));
}

TEST_F(BrokenEnginePlan, IsRejectedIfABucketTravelsTwice) {
  plan.messages.push_back(plan.messages[0]);
  EXPECT_THAT(rejection(), HasSubstr("bucket 0 travels 2 times in a step"));
}

TEST_F(BrokenEnginePlan, IsRejectedIfAMessageNamesAnUnknownBucket) {
  plan.messages[0].bucket = 2;
  EXPECT_THAT(rejection(), HasSubstr("a message has bucket 2 of 2"));
}

TEST_F(BrokenEnginePlan, IsRejectedIfAMessageHasAnotherSizeOrTypeThanItsBucket) {
  plan.messages[0].elements = 42;
  EXPECT_THAT(rejection(), HasSubstr("the message of bucket 0 has 42 elements of float32"));
  plan.messages[0].elements = 43;
  plan.messages[0].dtype = DType::float64;
  EXPECT_THAT(rejection(), HasSubstr("the message of bucket 0 has 43 elements of float64"));
}

TEST_F(BrokenEnginePlan, IsRejectedIfTheFactsDoNotTravel) {
  plan.messages[1].elements -= plan.messages[1].facts;
  plan.messages[1].facts = 0;
  EXPECT_THAT(rejection(), HasSubstr("0 of the 20 facts of a step travel"));
}

TEST_F(BrokenEnginePlan, IsRejectedIfTheFactsTravelTwice) {
  plan.messages.push_back({-1, DType::float32, plan.facts, plan.facts});
  EXPECT_THAT(rejection(), HasSubstr("40 of the 20 facts of a step travel"));
}

TEST_F(BrokenEnginePlan, IsRejectedIfItsMeshHasOtherRanksThanItsPlacement) {
  plan.mesh = Mesh({{"data", 3}});
  EXPECT_THAT(rejection(), HasSubstr("the mesh has 3 ranks, and the placement 2"));
}

TEST_F(BrokenEnginePlan, IsRejectedIfItHasShardsForOtherRanks) {
  plan.shards = replicate(plan.parameters, 1);
  EXPECT_THAT(rejection(), HasSubstr("shards for 1 of 2 ranks"));
}

TEST_F(BrokenEnginePlan, IsRejectedIfAPlanInsideIsBroken) {
  plan.shards.ranks[1].pop_back();
  EXPECT_THAT(rejection(), HasSubstr("shard plan: element 0 of 'b2' belongs to no rank"));
  plan.shards = replicate(plan.parameters, 2);
  plan.buckets.buckets.pop_back();
  EXPECT_THAT(rejection(), HasSubstr("bucket plan: parameter 0 'w1' is in no bucket"));
  plan.placement.hosts = {0, 0};
  EXPECT_THAT(rejection(), HasSubstr("placement: rank 1 is on host 0"));
}

TEST_F(BrokenEnginePlan, IsRejectedIfItHasPartsOfAnotherExchange) {
  plan.shard_tree = plan_shard_tree(4, 2);
  EXPECT_THAT(rejection(), HasSubstr("its parts are not those of exchange all_reduce"));
  plan = plan_data_parallel(facts_on(on_one_host(2, "threads")));
  plan.layout.reset();
  EXPECT_THAT(rejection(), HasSubstr("its parts are not those of exchange shared"));
}

TEST_F(BrokenEnginePlan, IsRejectedIfAnEngineFromOutsideHasPartsOfAnExchange) {
  plan = plan_data_parallel(facts_on(on_one_host(2, "threads")));
  plan.exchange = ExchangeKind::own;
  EXPECT_THAT(rejection(), HasSubstr("its parts are not those of exchange own"));
}

// The plan of an engine from outside for a frozen parameter among others.
EnginePlan votes_on(const Placement& placement, const std::string& engine = "votes") {
  return plan_replicas(
      engine, placement,
      {{"w1", {8, 10}}, {"b1", {10}, DType::float32, false}, {"w2", {10, 3}, DType::float64}});
}
std::vector<Placement> placements_of_votes() {
  return {each_alone(1, "gloo"), on_one_host(3, "threads"), on_one_host(2, "shm"),
          each_alone(3, "tcp"), on_hosts({2, 1}, "shm", "gloo")};
}

TEST(PlanOfReplicas, IsAcceptedByTheCheckerOnEachPlacement) {
  for (const Placement& placement : placements_of_votes()) {
    EnginePlan plan = votes_on(placement);
    EXPECT_NO_THROW(check(plan)) << placement.describe();
    EXPECT_EQ(plan.ranks(), placement.ranks());
    EXPECT_EQ(plan.mesh.world_size(), placement.ranks());
    EXPECT_EQ(to_string(plan.exchange), "own");
    plan.data = DataPlanOptions{.samples = 100, .batch = 32};
    EXPECT_NO_THROW(check(plan)) << placement.describe();
  }
}

TEST(PlanOfReplicas, GivesEachRankACopyOfTheTrainableElements) {
  const EnginePlan plan = votes_on(each_alone(3, "tcp"));
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(plan.shards.elements_of(rank), 80 + 30);
  EXPECT_THAT(plan.describe(), HasSubstr("every rank updates its own copy of 110 elements"));
}

TEST(PlanOfReplicas, LacksTheOperationsAndSaysWhoseTheyAre) {
  for (const Placement& placement : placements_of_votes()) {
    const EnginePlan plan = votes_on(placement);
    EXPECT_FALSE(plan.knows_all_operations);
    EXPECT_EQ(plan.operations_of(0, 10), 0);
    EXPECT_EQ(plan.bytes_sent_by(0, 10), 0);
    EXPECT_THAT(plan.describe(),
                AllOf(StartsWith("plan " + plan.digest() + ": votes by own; "),
                      HasSubstr("others, which are not known: those of the engine 'votes'"),
                      Not(HasSubstr("operations of a step: none"))));
  }
}

TEST(PlanOfReplicas, DigestsEnginePlacementAndParametersDifferently) {
  const Placement pair = on_one_host(2, "shm");
  const EnginePlan plan = votes_on(pair);
  EXPECT_THAT(plan.digest(), MatchesRegex("[0-9a-f]{16}"));
  EXPECT_EQ(votes_on(pair).digest(), plan.digest());
  EXPECT_NE(votes_on(pair, "neighbours").digest(), plan.digest());
  EXPECT_NE(votes_on(on_one_host(3, "shm")).digest(), plan.digest());
  EXPECT_NE(votes_on(each_alone(2, "tcp")).digest(), plan.digest());
  EXPECT_NE(plan_replicas("votes", pair, {{"w1", {8, 10}}}).digest(), plan.digest());
  EnginePlan with_data = plan;
  with_data.data = DataPlanOptions{.samples = 100, .batch = 32};
  EXPECT_NE(with_data.digest(), plan.digest());
}

// Draws small numbers from a seed.
class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  int below(int bound) {
    return static_cast<int>(mix64(seed_, ++drawn_) % static_cast<uint64_t>(bound));
  }
  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<int>(choices.size()))];
  }

 private:
  uint64_t seed_, drawn_ = 0;
};

Placement any_placement(Dice& dice) {
  const std::string between = dice.one_of({"tcp", "gloo", "mpi"});
  const int kind = dice.below(4);
  if (kind == 0) return on_one_host(1 + dice.below(6), dice.one_of({"threads", "shm"}));
  if (kind == 1) return each_alone(1 + dice.below(6), between);
  std::vector<int> sizes(static_cast<size_t>(2 + dice.below(2)));
  for (int& size : sizes) size = 1 + dice.below(3);
  return on_hosts(sizes, dice.one_of({"threads", "shm"}), between);
}

std::vector<TensorSpec> any_parameters(Dice& dice) {
  std::vector<TensorSpec> parameters(static_cast<size_t>(dice.below(8)));
  for (size_t p = 0; p < parameters.size(); ++p) {
    TensorSpec& spec = parameters[p];
    spec.name = "p" + std::to_string(p);
    for (int dimensions = dice.below(4); dimensions > 0; --dimensions)
      spec.shape.push_back(dice.one_of({0, 1, 3, 16, 17, 40}));
    spec.dtype = dice.one_of({DType::float32, DType::float32, DType::float64, DType::bfloat16});
    spec.trainable = dice.below(5) > 0;
  }
  return parameters;
}

DataParallelFacts any_facts(Dice& dice) {
  DataParallelFacts facts;
  facts.placement = any_placement(dice);
  facts.parameters = any_parameters(dice);
  if (dice.below(4) > 0)
    for (size_t p = 0; p < facts.parameters.size(); ++p)
      facts.state_tensors.push_back(dice.below(4));
  facts.share_parameters = dice.below(3) > 0;
  facts.buckets = {.capacity_bytes = dice.one_of({1, 100, 5000, 1 << 20}),
                   .first_bytes = dice.one_of({1, 200, 1 << 20})};
  if (dice.below(3) == 0) {
    facts.ready_order.resize(facts.parameters.size());
    std::iota(facts.ready_order.begin(), facts.ready_order.end(), 0);
  }
  if (dice.below(2) == 0)
    facts.data = DataPlanOptions{.samples = dice.below(50), .batch = 1 + dice.below(20)};
  if (dice.below(4) == 0) {
    facts.virtual_shards = 1 + dice.below(9);
    return facts;
  }
  facts.compression = {.name = dice.one_of({"none", "none", "none", "bf16", "fp16", "int8", "topk",
                                            "powersgd", "mine"}),
                       .rank = 1 + dice.below(3),
                       .ratio = 0.01 + 0.1 * dice.below(9)};
  facts.local = {1 + dice.below(3), dice.below(4), dice.below(2) == 0};
  return facts;
}

void expect_sound_operations(const EnginePlan& plan) {
  const auto ranks = static_cast<size_t>(plan.ranks());
  for (const Operation& operation : plan.operations) {
    ASSERT_EQ(operation.operations.size(), ranks) << operation.content;
    ASSERT_EQ(operation.bytes_sent.size(), ranks) << operation.content;
    for (size_t rank = 0; rank < ranks; ++rank) {
      EXPECT_GE(operation.operations[rank], 0) << operation.content;
      EXPECT_GE(operation.bytes_sent[rank], 0) << operation.content;
      if (operation.operations[rank] == 0) {
        EXPECT_EQ(operation.bytes_sent[rank], 0);
      }
    }
  }
  int64_t sum = 0;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    EXPECT_EQ(plan.bytes_sent_by(rank, 0), 0);
    EXPECT_GE(plan.bytes_sent_by(rank, 7), 0);
    EXPECT_GE(plan.bytes_sent_by(rank, 8), plan.bytes_sent_by(rank, 7));
    sum += plan.bytes_sent_by(rank, 7);
  }
  EXPECT_GE(sum, 0);
  EXPECT_LT(sum, int64_t{1} << 40);
  if (ranks == 1) {
    EXPECT_THAT(plan.operations, IsEmpty());
  }
}

TEST(EnginePlan, IsSoundForFactsOfAllKinds) {
  std::map<ExchangeKind, int> seen;
  for (uint64_t number = 0; number < 300; ++number) {
    Dice dice(number);
    const DataParallelFacts facts = any_facts(dice);
    const EnginePlan plan = plan_data_parallel(facts);
    SCOPED_TRACE("case " + std::to_string(number) + "\n" + plan.describe());
    ++seen[plan.exchange];
    EXPECT_NO_THROW(check(plan));
    expect_sound_operations(plan);
    EXPECT_THAT(plan.digest(), MatchesRegex("[0-9a-f]{16}"));
    EXPECT_EQ(plan.digest(), plan_data_parallel(facts).digest());
    EXPECT_THAT(plan.to_json().dump(), HasSubstr(plan.digest()));
    const bool compresses = plan.ranks() > 1 && !plan.buckets.buckets.empty() &&
                            (plan.exchange != ExchangeKind::local_steps || facts.local.after > 0);
    const bool averages_unknown_state = plan.exchange == ExchangeKind::local_steps &&
                                        facts.local.momentum && facts.state_tensors.empty();
    EXPECT_EQ(plan.knows_all_operations,
              (facts.compression.name != "mine" || !compresses) && !averages_unknown_state);
  }
  EXPECT_EQ(seen.size(), 4U) << "the cases are of every exchange";
}

}  // namespace
}  // namespace trireme::plan::engine_plan_test
