#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/plan/collective_plan.h>
#include <bit>
#include <cmath>
#include <limits>

#include "../base/expect_error.h"
#include "reference_executor.h"

namespace trireme::plan::collective_plan_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kMostRanks = 16;
const std::vector<int64_t> kSizes = {0, 1, 2, 3, 5, 7, 16, 17, 97, 1000};

std::string name_of(const CollectivePlan& plan) {
  return std::string(to_string(plan.collective)) + " " + std::string(to_string(plan.algorithm)) +
         " n=" + std::to_string(plan.world_size) + " root=" + std::to_string(plan.root);
}

double value_of(int rank, size_t element) {
  return static_cast<double>(mix64(static_cast<uint64_t>(rank), element) % 1000) - 500;
}

// The values that the ranks hold before the collective. Values that they must not use are NaN.
Tensors<double> inputs_of(const CollectivePlan& plan, int64_t elements) {
  Tensors<double> tensors(static_cast<size_t>(plan.world_size));
  for (int rank = 0; rank < plan.world_size; ++rank) {
    auto& tensor = tensors[static_cast<size_t>(rank)];
    for (size_t i = 0; i < static_cast<size_t>(elements); ++i) tensor.push_back(value_of(rank, i));
    if (plan.collective == Collective::broadcast && rank != plan.root) {
      std::fill(tensor.begin(), tensor.end(), std::numeric_limits<double>::quiet_NaN());
    }
    if (plan.collective == Collective::all_gather) {
      const auto [first, last] = plan.chunk_range(rank, elements);
      std::fill(tensor.begin(), tensor.begin() + first, std::numeric_limits<double>::quiet_NaN());
      std::fill(tensor.begin() + last, tensor.end(), std::numeric_limits<double>::quiet_NaN());
    }
  }
  if (plan.collective == Collective::all_to_all) {
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      const auto [first, last] = plan.chunk_range(chunk, elements);
      for (int rank = 0; rank < plan.world_size; ++rank) {
        auto& tensor = tensors[static_cast<size_t>(rank)];
        if (rank != chunk / plan.world_size)
          std::fill(tensor.begin() + first, tensor.begin() + last,
                    std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
  return tensors;
}

int chunk_of(const CollectivePlan& plan, int64_t elements, size_t element) {
  int chunk = 0;
  while (plan.chunk_range(chunk, elements).second <= static_cast<int64_t>(element)) ++chunk;
  return chunk;
}

// Whether the collective promises this element to the rank.
bool is_promised(const CollectivePlan& plan, int rank, int64_t elements, size_t element) {
  switch (plan.collective) {
    case Collective::reduce_scatter: return chunk_of(plan, elements, element) == rank;
    case Collective::all_to_all:
      return chunk_of(plan, elements, element) % plan.world_size == rank;
    default: return true;
  }
}

// The result by the definition of the collective, without the rounds of the plan.
double expected_of(const CollectivePlan& plan, int64_t elements, size_t element) {
  if (plan.collective == Collective::broadcast) return value_of(plan.root, element);
  const bool collects = plan.collective == Collective::all_gather;
  if (collects) return value_of(chunk_of(plan, elements, element), element);
  if (plan.collective == Collective::all_to_all)
    return value_of(chunk_of(plan, elements, element) / plan.world_size, element);
  double sum = 0;
  for (int rank = 0; rank < plan.world_size; ++rank) sum += value_of(rank, element);
  return sum;
}

TEST(CollectivePlan, GivesTheDirectSumForAwkwardSizes) {
  for_each_plan(kMostRanks, [](const CollectivePlan& plan) {
    for (const int64_t elements : kSizes) {
      const Tensors<double> results = execute(plan, inputs_of(plan, elements));
      for (int rank = 0; rank < plan.world_size; ++rank) {
        for (size_t i = 0; i < static_cast<size_t>(elements); ++i) {
          if (!is_promised(plan, rank, elements, i)) continue;
          // The values are small whole numbers: their sum is exact in any order.
          ASSERT_EQ(results[static_cast<size_t>(rank)][i], expected_of(plan, elements, i))
              << name_of(plan) << " rank " << rank << " element " << i << " of " << elements;
        }
      }
    }
  });
}

TEST(CollectivePlan, LeavesTheSameBitsOnEveryRank) {
  for_each_plan(kMostRanks, [](const CollectivePlan& plan) {
    if (plan.collective != Collective::all_reduce) return;
    Tensors<float> tensors(static_cast<size_t>(plan.world_size));
    for (size_t rank = 0; rank < tensors.size(); ++rank) {
      for (uint64_t i = 0; i < 97; ++i) {
        const uint64_t random = mix64(7, rank, i);
        tensors[rank].push_back(
            std::ldexp(static_cast<float>(random >> 40), static_cast<int>(random % 32) - 16));
      }
    }
    const Tensors<float> results = execute(plan, tensors);
    for (const std::vector<float>& result : results)
      ASSERT_EQ(result, results[0]) << name_of(plan);
  });
}

TEST(CollectivePlan, SumsInRankOrderWhereARankReadsAllOthers) {
  const int n = 5;
  Tensors<float> tensors;
  for (int rank = 0; rank < n; ++rank) {
    tensors.emplace_back();
    for (uint64_t i = 0; i < 40; ++i)
      tensors.back().push_back(
          1.0F / static_cast<float>(1 + mix64(static_cast<uint64_t>(rank), i) % 1000));
  }
  std::vector<float> expected = tensors[0];
  for (size_t rank = 1; rank < n; ++rank) {
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += tensors[rank][i];
  }
  for (const Algorithm algorithm : {Algorithm::naive, Algorithm::direct}) {
    EXPECT_EQ(execute(plan_collective(Collective::all_reduce, algorithm, n), tensors)[3], expected)
        << to_string(algorithm);
  }
}

TEST(CollectivePlan, ChunksCoverTheTensorWithoutGapAndDifferByOneElement) {
  for (int chunks = 1; chunks <= kMostRanks; ++chunks) {
    const CollectivePlan plan{.chunks = chunks};
    for (const int64_t elements : kSizes) {
      int64_t end = 0;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const auto [first, last] = plan.chunk_range(chunk, elements);
        EXPECT_EQ(first, end);
        EXPECT_GE(last - first, elements / chunks);
        EXPECT_LE(last - first, (elements + chunks - 1) / chunks);
        end = last;
      }
      EXPECT_EQ(end, elements);
    }
  }
}

TEST(CollectivePlan, TakesTheRoundsAndBytesThatItsAlgorithmPromises) {
  constexpr int64_t kBytes = 720720;  // A multiple of every world size in this test.
  for (int n = 2; n <= kMostRanks; ++n) {
    const auto naive = plan_collective(Collective::all_reduce, Algorithm::naive, n);
    const auto direct = plan_collective(Collective::all_reduce, Algorithm::direct, n);
    const auto ring = plan_collective(Collective::all_reduce, Algorithm::ring, n);
    EXPECT_EQ(naive.rounds.size(), 1U);
    EXPECT_EQ(direct.rounds.size(), 2U);
    EXPECT_EQ(ring.rounds.size(), static_cast<size_t>(2 * (n - 1)));
    for (int rank = 0; rank < n; ++rank) {
      EXPECT_EQ(naive.bytes_received(rank, kBytes), (n - 1) * kBytes);
      EXPECT_EQ(direct.bytes_received(rank, kBytes), 2 * (n - 1) * (kBytes / n));
      EXPECT_EQ(ring.bytes_received(rank, kBytes), 2 * (n - 1) * (kBytes / n));
    }
    const auto chain = plan_collective(Collective::broadcast, Algorithm::ring, n, n - 1);
    EXPECT_EQ(chain.rounds.size(), static_cast<size_t>(2 * n - 2));
    EXPECT_EQ(chain.bytes_received(n - 1, kBytes), 0);
    EXPECT_EQ(chain.bytes_received(0, kBytes), kBytes);
  }
}

TEST(CollectivePlan, SendsInAllWhatItsRanksReceive) {
  constexpr int64_t kElements = 720720, kElementBytes = 4;  // No chunk is longer than another.
  for_each_plan(kMostRanks, [](const CollectivePlan& plan) {
    int64_t sent = 0, received = 0;
    for (int rank = 0; rank < plan.world_size; ++rank) {
      sent += plan.bytes_sent(rank, kElements, kElementBytes);
      received += plan.bytes_received(rank, kElements * kElementBytes);
      EXPECT_EQ(plan.bytes_sent(rank, 0, kElementBytes), 0);
    }
    ASSERT_EQ(sent, received) << name_of(plan);
  });
}

TEST(CollectivePlan, CountsTheBytesOfUnevenChunksExactly) {
  const auto plan = plan_collective(Collective::reduce_scatter, Algorithm::direct, 2);
  EXPECT_EQ(plan.bytes_sent(0, 3, 4), 4) << "chunk 1 has one element";
  EXPECT_EQ(plan.bytes_sent(1, 3, 4), 8) << "chunk 0 has two";
}

TEST(CollectivePlan, DoesNotCountASendToItself) {
  CollectivePlan plan{.world_size = 2, .chunks = 1};
  plan.rounds.emplace_back(2);
  plan.rounds[0][0].sends = {{0, 0}, {0, 1}};
  EXPECT_EQ(plan.bytes_sent(0, 10, 4), 40);
}

int ceil_log2(int n) {
  int rounds = 0;
  while ((1 << rounds) < n) ++rounds;
  return rounds;
}

TEST(CollectivePlan, TakesLogarithmicRoundsWithPartnersAndTrees) {
  constexpr int64_t kBytes = 720720;
  for (int n = 2; n <= kMostRanks; ++n) {
    const int core = std::has_single_bit(static_cast<unsigned>(n)) ? n : 1 << (ceil_log2(n) - 1);
    const int extra = n - core, lg = ceil_log2(core), around = extra > 0 ? 2 : 0;
    const int64_t folded = extra > 0 ? kBytes : 0;
    const auto doubling =
        plan_collective(Collective::all_reduce, Algorithm::recursive_doubling, n);
    EXPECT_EQ(doubling.rounds.size(), static_cast<size_t>(lg + around));
    EXPECT_EQ(doubling.bytes_received(0, kBytes), lg * kBytes + folded);
    EXPECT_EQ(doubling.bytes_received(n - 1, kBytes), lg * kBytes)
        << "the last rank is not a left neighbour";
    const auto halving = plan_collective(Collective::all_reduce, Algorithm::halving_doubling, n);
    EXPECT_EQ(halving.rounds.size(), static_cast<size_t>(2 * lg + around));
    EXPECT_EQ(halving.bytes_received(0, kBytes), 2 * (core - 1) * (kBytes / core) + folded);
    for (const auto& plan : {doubling, halving}) {
      for (int i = 0; i < extra; ++i) EXPECT_EQ(plan.bytes_received(2 * i + 1, kBytes), kBytes);
    }
    EXPECT_EQ(
        plan_collective(Collective::reduce_scatter, Algorithm::halving_doubling, n).rounds.size(),
        static_cast<size_t>(lg + around));
    EXPECT_EQ(
        plan_collective(Collective::all_gather, Algorithm::recursive_doubling, n).rounds.size(),
        static_cast<size_t>(lg + around));
    const auto tree = plan_collective(Collective::all_reduce, Algorithm::tree, n);
    EXPECT_EQ(tree.rounds.size(), static_cast<size_t>(2 * ceil_log2(n)));
    EXPECT_EQ(tree.bytes_received(0, kBytes), ceil_log2(n) * kBytes);
    EXPECT_EQ(plan_collective(Collective::broadcast, Algorithm::tree, n, n / 2).rounds.size(),
              static_cast<size_t>(ceil_log2(n)));
  }
}

TEST(CollectivePlan, PassesEachHostsNetworkOnceEachWayInAHierarchy) {
  constexpr int64_t kBytes = 720720;
  for (const int hosts : {2, 3, 4}) {
    for (const int each : {1, 2, 4}) {
      std::vector<int> layout;
      for (int rank = 0; rank < hosts * each; ++rank) layout.push_back(rank / each);
      const auto plan = plan_collective(Collective::all_reduce, Algorithm::hierarchical,
                                        hosts * each, 0, layout);
      EXPECT_EQ(plan.rounds.size(), static_cast<size_t>(2 * (hosts - 1) + (each > 1 ? 3 : 0)));
      std::vector<int64_t> in(static_cast<size_t>(hosts));
      for (const auto& round : plan.rounds) {
        for (int rank = 0; rank < plan.world_size; ++rank) {
          for (const auto& [chunk, receiver] : round[static_cast<size_t>(rank)].sends) {
            if (layout[static_cast<size_t>(rank)] == layout[static_cast<size_t>(receiver)])
              continue;
            EXPECT_EQ(rank % each + receiver % each, 0)
                << "only leaders exchange with other hosts";
            in[static_cast<size_t>(layout[static_cast<size_t>(receiver)])] += kBytes / plan.chunks;
          }
        }
      }
      for (const int64_t bytes : in)
        EXPECT_LE(bytes,
                  2 * kBytes * (hosts - 1) / hosts + kBytes / plan.chunks * 2 * (hosts - 1));
    }
  }
}

TEST(CollectivePlan, KnowsItsLinksAndItsMemory) {
  constexpr int64_t kBytes = 720720;
  struct Promise {
    Algorithm algorithm;
    int64_t link, in_shared_memory, by_messages;
  };
  for (const int n : {2, 4, 8, 16}) {
    for (const Promise& promise : {Promise{Algorithm::naive, kBytes, kBytes, (n - 1) * kBytes},
                                   {Algorithm::direct, 2 * kBytes / n, 0, (n - 1) * kBytes / n},
                                   {Algorithm::ring, 2 * (n - 1) * (kBytes / n), 0, kBytes / n},
                                   {Algorithm::recursive_doubling, kBytes, kBytes, kBytes},
                                   {Algorithm::halving_doubling, kBytes, 0, kBytes / 2},
                                   {Algorithm::tree, kBytes, 0, kBytes}}) {
      const auto plan = plan_collective(Collective::all_reduce, promise.algorithm, n);
      EXPECT_EQ(plan.bytes_on_busiest_link(kBytes), promise.link) << name_of(plan);
      EXPECT_EQ(plan.extra_bytes_in_shared_memory(kBytes), promise.in_shared_memory)
          << name_of(plan);
      EXPECT_EQ(plan.extra_bytes_by_messages(kBytes), promise.by_messages) << name_of(plan);
    }
  }
}

TEST(CollectivePlan, UsesOnlyTheLinkToTheRightNeighbourInARing) {
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter,
                                      Collective::all_gather, Collective::broadcast}) {
    for (int n = 2; n <= kMostRanks; ++n) {
      for (const auto& round : plan_collective(collective, Algorithm::ring, n).rounds) {
        for (int rank = 0; rank < n; ++rank) {
          const auto& sends = round[static_cast<size_t>(rank)].sends;
          EXPECT_LE(sends.size(), 1U);
          for (const auto& [chunk, receiver] : sends) EXPECT_EQ(receiver, (rank + 1) % n);
        }
      }
    }
  }
}

TEST(CollectivePlan, SendsEachBlockOfAnAllToAllOnce) {
  for (int n = 2; n <= kMostRanks; ++n) {
    const auto plan = plan_collective(Collective::all_to_all, Algorithm::direct, n);
    EXPECT_EQ(plan.rounds.size(), 1U);
    const int64_t input = int64_t{n} * 30;  // The tensor of the plan has n of these.
    for (int rank = 0; rank < n; ++rank)
      EXPECT_EQ(plan.bytes_sent(rank, n * input, 4), (n - 1) * 120);
  }
}

TEST(CollectivePlan, HasNoRoundsForOneRank) {
  for_each_plan(1, [](const CollectivePlan& plan) { EXPECT_TRUE(plan.rounds.empty()); });
}

TEST(CollectivePlan, RefusesAWorldOrRootThatDoesNotExist) {
  const auto plan = [](int n, int root) {
    return [=] { plan_collective(Collective::broadcast, Algorithm::naive, n, root); };
  };
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, plan(0, 0)), HasSubstr("world size is 0"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, plan(-3, 0)), HasSubstr("world size is -3"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, plan(4, 4)),
              HasSubstr("root 4 is outside a world of 4 ranks"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, plan(4, -1)), HasSubstr("root -1"));
}

TEST(CollectivePlan, RefusesHostsThatAreNotOneForEachRank) {
  const auto plan = [](std::vector<int> hosts) {
    return [=] { plan_collective(Collective::all_reduce, Algorithm::hierarchical, 3, 0, hosts); };
  };
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, plan({0, 1})),
              HasSubstr("hosts are given for 2 of 3 ranks"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, plan({0, -1, 0})),
              HasSubstr("host number -1"));
}

TEST(CollectivePlan, RefusesAnAlgorithmThatDoesNotFitAndNamesThoseThatDo) {
  const auto plan = [](Collective collective, Algorithm algorithm) {
    return [=] { plan_collective(collective, algorithm, 4); };
  };
  EXPECT_THAT(message_of(ErrorCode::unsupported, plan(Collective::broadcast, Algorithm::direct)),
              AllOf(HasSubstr("no broadcast by algorithm 'direct'"),
                    HasSubstr("naive, ring, tree, hierarchical")));
  EXPECT_THAT(
      message_of(ErrorCode::unsupported, plan(Collective::reduce_scatter, Algorithm::tree)),
      AllOf(HasSubstr("'tree'"),
            HasSubstr("naive, direct, ring, halving_doubling, hierarchical")));
  EXPECT_THAT(message_of(ErrorCode::unsupported,
                         plan(Collective::all_gather, Algorithm::halving_doubling)),
              HasSubstr("naive, direct, ring, recursive_doubling, hierarchical"));
}

TEST(CollectivePlan, KnowsWhichAlgorithmsDoTheSame) {
  EXPECT_THAT(
      distinct_algorithms_of(Collective::reduce_scatter, 4),
      testing::ElementsAre(Algorithm::naive, Algorithm::ring, Algorithm::halving_doubling));
  EXPECT_THAT(distinct_algorithms_of(Collective::broadcast, 1),
              testing::ElementsAre(Algorithm::naive));
}

TEST(CollectivePlan, ReadsNamesAndOffersTheChoicesForAnUnknownOne) {
  for (const Algorithm algorithm : all_algorithms())
    EXPECT_EQ(algorithm_from_string(to_string(algorithm)), algorithm);
  for (const Collective collective : all_collectives())
    EXPECT_EQ(collective_from_string(to_string(collective)), collective);
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [] { algorithm_from_string("rign"); }),
      AllOf(HasSubstr("'rign'"),
            HasSubstr(
                "naive, direct, ring, recursive_doubling, halving_doubling, tree, hierarchical")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { collective_from_string("scan"); }),
              AllOf(HasSubstr("'scan' is not a known collective"),
                    HasSubstr("all_reduce, reduce_scatter")));
}

TEST(CollectivePlan, GivesEveryTransferAsJson) {
  const Json json = plan_collective(Collective::broadcast, Algorithm::naive, 2, 1).to_json();
  EXPECT_EQ(json.dump(),
            R"({"collective":"broadcast","algorithm":"naive","world_size":2,"chunks":1,"root":1,)"
            R"("rounds":[[{"receives":[{"chunk":0,"sources":[1]}],"sends":[]},)"
            R"({"receives":[],"sends":[{"chunk":0,"to":0}]}]]})");
}

}  // namespace
}  // namespace trireme::plan::collective_plan_test
