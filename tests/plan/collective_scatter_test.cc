#include <gtest/gtest.h>

#include <trireme/plan/collective_scatter.h>
#include <set>

namespace trireme::plan::collective_scatter_test {
namespace {

using Hosts = std::vector<std::vector<int>>;

const Hosts kLayouts[] = {{{0, 1}, {2, 3}}, {{0, 2}, {1, 3}},         {{0}, {1, 2}},
                          {{0}, {1}, {2}},  {{0, 3, 4}, {1}, {2, 5}}, {{0, 1, 2}}};

int ranks_of(const Hosts& hosts) {
  int ranks = 0;
  for (const auto& host : hosts) ranks += static_cast<int>(host.size());
  return ranks;
}

TEST(ScatterOverHosts, SendsEachElementOfABlockOnceFromEveryOtherHost) {
  for (const Hosts& hosts : kLayouts)
    for (const int64_t block : {0, 1, 2, 5, 7, 64}) {
      const ScatterOverHosts scatter(hosts, block);
      for (int host = 0; host < static_cast<int>(hosts.size()); ++host)
        for (const int to : scatter.others_of(host)) {
          std::multiset<int64_t> sent;
          for (int place = 0; place < static_cast<int>(hosts[host].size()); ++place) {
            const auto [first, last] = scatter.part(host, place, to);
            for (int64_t element = first; element < last; ++element) sent.insert(element);
          }
          EXPECT_EQ(static_cast<int64_t>(sent.size()), block);
          EXPECT_EQ(std::set<int64_t>(sent.begin(), sent.end()).size(), sent.size());
        }
    }
}

TEST(ScatterOverHosts, PutsPartsIntoAPortionWithoutGapInTheOrderOfRanks) {
  for (const Hosts& hosts : kLayouts)
    for (const int64_t block : {1, 5, 64}) {
      const ScatterOverHosts scatter(hosts, block);
      for (int host = 0; host < static_cast<int>(hosts.size()); ++host)
        for (int place = 0; place < static_cast<int>(hosts[host].size()); ++place) {
          int64_t end = 0;
          for (const int to : scatter.others_of(host)) {
            const auto [first, last] = scatter.part(host, place, to);
            if (first == last) continue;
            EXPECT_EQ(scatter.offset(host, place, to), end);
            end += last - first;
          }
          EXPECT_EQ(end, scatter.sent_between_hosts(host, place));
          EXPECT_LE(end, scatter.portion(host));
        }
    }
}

TEST(ScatterOverHosts, LetsEachRankSendTheLeastThatIsPossible) {
  const Hosts hosts{{0, 1, 2}, {3, 4, 5}};
  const int64_t block = 30, n = ranks_of(hosts);
  const ScatterOverHosts scatter(hosts, block);
  for (int host = 0; host < 2; ++host)
    for (int place = 0; place < 3; ++place) {
      const int64_t inside = 2 * (block + scatter.portion(host));  // To the two others.
      EXPECT_EQ(inside + scatter.sent_between_hosts(host, place), (n - 1) * block);
    }
}

}  // namespace
}  // namespace trireme::plan::collective_scatter_test
