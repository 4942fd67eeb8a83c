#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/plan/collective_cost.h>
#include <trireme/plan/collective_table.h>
#include <cmath>

#include "../base/expect_error.h"

namespace trireme::plan::collective_table_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const TableKey kKey{"tcp", Collective::all_reduce, 4, 2};
const SizeChoices kChoices{{0, Algorithm::recursive_doubling}, {65536, Algorithm::ring}};

Algorithm chosen(const SizeChoices& choices, int64_t bytes) {
  return choices[choose(choices, bytes)].algorithm;
}

std::string refusal(const std::string& text) {
  return message_of(ErrorCode::invalid_argument,
                    [&] { CollectiveTable::parse(text, "table.json"); });
}

// A table of one right row, in which `replaced` takes the place of `part`.
std::string with(const std::string& part, const std::string& replaced) {
  std::string text = R"({"rows": [{"path":"tcp","collective":"all_reduce","ranks":4,"hosts":2,)"
                     R"("choices":[{"from_bytes":0,"algorithm":"tree"},)"
                     R"({"from_bytes":8192,"algorithm":"ring"}]}]})";
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), replaced);
}

TEST(CollectiveTable, ChoosesByTheSizeThatIsReached) {
  EXPECT_EQ(chosen(kChoices, 0), Algorithm::recursive_doubling);
  EXPECT_EQ(chosen(kChoices, 65535), Algorithm::recursive_doubling);
  EXPECT_EQ(chosen(kChoices, 65536), Algorithm::ring);
  EXPECT_EQ(chosen(kChoices, int64_t{1} << 40), Algorithm::ring);
}

TEST(CollectiveTable, DescribesWhichAlgorithmStartsAtWhichSize) {
  EXPECT_EQ(describe(kChoices), "recursive_doubling, from 65.5 KB ring");
}

TEST(CollectiveTable, AnswersForItsRowsAndByTheModelForTheRest) {
  CollectiveTable table;
  table.set(kKey, kChoices);
  EXPECT_EQ(table.choices("tcp", Collective::all_reduce, 4, {3, 3, 5, 5}), kChoices);
  EXPECT_EQ(table.choices("tcp", Collective::all_reduce, 4, {}),
            default_choices("tcp", Collective::all_reduce, 4, {}));
  EXPECT_EQ(table.choices("tcp", Collective::all_reduce, 3, {0, 0, 1}),
            default_choices("tcp", Collective::all_reduce, 3, {0, 0, 1}));
}

TEST(CollectiveTable, TakesTheWantedAlgorithmWhateverTheRowsSay) {
  CollectiveTable table;
  table.set(kKey, kChoices);
  table.always(Collective::all_reduce, Algorithm::tree);
  EXPECT_EQ(table.choices("tcp", Collective::all_reduce, 4, {0, 0, 1, 1}),
            (SizeChoices{{0, Algorithm::tree}}));
  EXPECT_EQ(table.choices("tcp", Collective::broadcast, 4, {}),
            default_choices("tcp", Collective::broadcast, 4, {}));
  EXPECT_THAT(message_of(ErrorCode::unsupported,
                         [&] { table.always(Collective::broadcast, Algorithm::direct); }),
              HasSubstr("naive, ring"));
}

TEST(CollectiveTable, ReadsWhatItWrites) {
  CollectiveTable table;
  table.set(kKey, kChoices);
  table.set({"threads", Collective::broadcast, 2, 1}, {{0, Algorithm::naive}});
  const CollectiveTable read = CollectiveTable::parse(table.to_text(), "table.json");
  EXPECT_EQ(read, table);
  EXPECT_EQ(read.to_text(), table.to_text());
  EXPECT_EQ(CollectiveTable::parse(CollectiveTable().to_text(), "table.json"), CollectiveTable());
}

TEST(CollectiveTable, NamesTheFileTheRowTheFieldAndTheWrongValue) {
  EXPECT_THAT(refusal("{"), AllOf(HasSubstr("table.json"), HasSubstr("not JSON")));
  EXPECT_THAT(refusal("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("rows is missing"));
  EXPECT_THAT(refusal(R"({"rows": 5})"), HasSubstr("rows is 5, and must be a list"));
  EXPECT_THAT(refusal(R"({"rows": [7]})"), HasSubstr("table.json: row 0 is 7"));
  EXPECT_THAT(refusal(with(R"("hosts":2,)", "")), HasSubstr("row 0: hosts is missing"));
  EXPECT_THAT(refusal(with(R"("hosts":2)", R"("host":2)")), HasSubstr("'host' is not known here"));
  EXPECT_THAT(refusal(with(R"("tcp")", R"("udp")")),
              AllOf(HasSubstr("row 0: path is 'udp'"), HasSubstr("threads, shm, tcp")));
  EXPECT_THAT(refusal(with("all_reduce", "reduce")),
              AllOf(HasSubstr("collective is 'reduce'"), HasSubstr("all_reduce, reduce_scatter")));
  EXPECT_THAT(refusal(with(R"("ranks":4)", R"("ranks":-4)")), HasSubstr("ranks is -4"));
  EXPECT_THAT(refusal(with(R"("ranks":4)", R"("ranks":"4")")),
              HasSubstr(R"(ranks is "4", and must be a whole number)"));
  EXPECT_THAT(refusal(with(R"("ranks":4)", R"("ranks":9999999999)")),
              HasSubstr("ranks is 9999999999"));
  EXPECT_THAT(refusal(with(R"("ranks":4)", R"("ranks":0)")), HasSubstr("ranks is 0"));
  EXPECT_THAT(refusal(with(R"("hosts":2)", R"("hosts":5)")),
              HasSubstr("hosts is 5, and must be 1 to 4"));
  EXPECT_THAT(refusal(with(R"("from_bytes":0)", R"("from_bytes":1)")),
              HasSubstr("nothing is chosen for tensors from 0 bytes"));
  EXPECT_THAT(refusal(with("8192", "0")), HasSubstr("from_bytes 0 does not come after 0"));
  EXPECT_THAT(refusal(with("8192", "1.5")), HasSubstr("row 0, choice 1: from_bytes is 1.5"));
  EXPECT_THAT(
      refusal(with(R"("ring")", R"("rign")")),
      AllOf(HasSubstr("row 0, choice 1: algorithm is 'rign'"), HasSubstr("naive, direct")));
  EXPECT_THAT(refusal(with("all_reduce", "all_gather")),
              AllOf(HasSubstr("no all_gather by algorithm 'tree'"), HasSubstr("naive, direct")));
  const std::string row = R"({"path":"tcp","collective":"broadcast","ranks":2,"hosts":1,)"
                          R"("choices":[{"from_bytes":0,"algorithm":"naive"}]})";
  EXPECT_THAT(refusal(R"({"rows": [)" + row + "," + row + "]}"),
              AllOf(HasSubstr("row 1"), HasSubstr("another row")));
}

TEST(CollectiveTuning, TakesTheFastestFromHalfWayBetweenTwoSizes) {
  const auto naive = Algorithm::naive, direct = Algorithm::direct, ring = Algorithm::ring;
  EXPECT_EQ(fastest_choices({{1024, naive, 1.0},
                             {1024, direct, 2.0},
                             {4096, naive, 3.0},
                             {4096, direct, 2.0},
                             {16384, direct, 5.0},
                             {16384, ring, 4.0}}),
            (SizeChoices{{0, naive}, {2048, direct}, {8192, ring}}));
}

TEST(CollectiveTuning, KeepsAnAlgorithmThatIsAsGoodAsTheFastest) {
  const auto naive = Algorithm::naive, direct = Algorithm::direct;
  EXPECT_EQ(fastest_choices({{1024, naive, 1.0},
                             {1024, direct, 1.1},
                             {4096, naive, 1.04},
                             {4096, direct, 1.0},
                             {16384, naive, 2},
                             {16384, direct, 2.2}}),
            (SizeChoices{{0, naive}}));
}

TEST(CollectiveCost, FollowsTheBoundsOfTheAlphaBetaModel) {
  constexpr double kRound = 1e-4, kRate = 1e8;
  const PathCost path{{kRound, 0, kRate}, {kRound, 0, kRate}, 1e30};
  const auto priced = [&](Algorithm algorithm, int n) {
    return cost(plan_collective(Collective::all_reduce, algorithm, n), path);
  };
  for (const int n : {2, 4, 8, 16}) {
    const double lg = std::log2(n), share = 2.0 * (n - 1) / n;
    EXPECT_NEAR(priced(Algorithm::ring, n).fixed_seconds, 2 * (n - 1) * kRound, 1e-9);
    EXPECT_NEAR(priced(Algorithm::ring, n).seconds_per_byte, share / kRate, 1e-15);
    EXPECT_NEAR(priced(Algorithm::recursive_doubling, n).fixed_seconds, lg * kRound, 1e-9);
    EXPECT_NEAR(priced(Algorithm::recursive_doubling, n).seconds_per_byte, lg / kRate, 1e-15);
    EXPECT_NEAR(priced(Algorithm::halving_doubling, n).fixed_seconds, 2 * lg * kRound, 1e-9);
    EXPECT_NEAR(priced(Algorithm::halving_doubling, n).seconds_per_byte, share / kRate, 1e-15);
  }
}

TEST(CollectiveCost, CountsAHostsNetworkForAllItsRanks) {
  const PathCost path{{0, 0, 1e30}, {0, 0, 1e8}, 1e30};
  const std::vector<int> hosts{0, 0, 0, 0, 1, 1, 1, 1};
  const auto priced = [&](Algorithm algorithm) {
    return cost(plan_collective(Collective::all_reduce, algorithm, 8, 0, hosts), path)
               .seconds_per_byte *
           1e8;
  };
  EXPECT_NEAR(priced(Algorithm::hierarchical), 1, 1e-6);  // 2 (h-1)/h S.
  // 4 ranks read from 4 others, twice.
  EXPECT_NEAR(priced(Algorithm::direct), 2 * 16.0 / 8, 1e-6);
}

TEST(CollectiveDefaults, AreTheCheapestOfTheModelAtEverySize) {
  for (const std::string_view path : paths_with_plans()) {
    for (const Collective collective : all_collectives()) {
      for (const std::vector<int>& hosts :
           {std::vector<int>{}, {0, 0, 1}, {0, 1, 2, 3}, {0, 0, 0, 0, 1, 1, 1, 1}}) {
        const int n = hosts.empty() ? 2 : static_cast<int>(hosts.size());
        const SizeChoices choices = default_choices(std::string(path), collective, n, hosts);
        for (double bytes = 1; bytes < 1e10; bytes *= 3) {
          const auto price = [&](Algorithm algorithm) {
            return cost(plan_collective(collective, algorithm, n, 0, hosts), cost_of_path(path))
                .seconds(bytes);
          };
          const double best = price(chosen(choices, static_cast<int64_t>(bytes)));
          for (const Algorithm other : algorithms_of(collective))
            EXPECT_LE(best, price(other) * (1 + 1e-6))
                << path << " " << to_string(collective) << " n=" << n << " " << bytes << " bytes";
        }
      }
    }
  }
}

TEST(CollectiveDefaults, PassTheNetworkOncePerHost) {
  const std::vector<int> hosts{0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_EQ(chosen(default_choices("tcp", Collective::all_reduce, 8, hosts), 25 << 20),
            Algorithm::hierarchical);
}

TEST(CollectiveDefaults, AvoidSeveralSendersToOneHostForLargeTensors) {
  const Algorithm large =
      chosen(default_choices("tcp", Collective::all_reduce, 4, {0, 1, 2, 3}), 25 << 20);
  EXPECT_TRUE(large == Algorithm::ring || large == Algorithm::halving_doubling)
      << to_string(large);
}

// The shared-memory backend runs that plan with the fewest barriers.
TEST(CollectiveDefaults, LetEachProcessOfAHostReadEveryOther) {
  for (int ranks = 2; ranks <= 64; ++ranks) {
    const SizeChoices choices = default_choices("shm", Collective::all_reduce, ranks, {});
    ASSERT_EQ(choices.size(), 2U) << ranks << ": " << describe(choices);
    EXPECT_EQ(choices[0].algorithm, Algorithm::naive);
    EXPECT_EQ(choices[1].algorithm, Algorithm::direct);
    for (const Collective other :
         {Collective::reduce_scatter, Collective::all_gather, Collective::broadcast})
      for (const SizeChoice& choice : default_choices("shm", other, ranks, {}))
        EXPECT_EQ(plan_collective(other, choice.algorithm, ranks).rounds.size(), 1U)
            << ranks << " " << to_string(other);
  }
}

TEST(CollectiveDefaults, ExistForOneRank) {
  for (const Collective collective : all_collectives())
    EXPECT_EQ(default_choices("threads", collective, 1, {}).size(), 1U) << to_string(collective);
}

TEST(CollectiveDefaults, KnowThePathsThatRunPlans) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [] { default_choices("gloo", Collective::all_reduce, 2, {}); }),
              AllOf(HasSubstr("'gloo'"), HasSubstr("threads, shm, tcp")));
}

}  // namespace
}  // namespace trireme::plan::collective_table_test
