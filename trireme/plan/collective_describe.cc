#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/plan/collective_rounds.h>
#include <trireme/plan/collective_symbols.h>
#include <algorithm>
#include <map>

namespace trireme::plan {
namespace {

constexpr int kMostRounds = 32;  // The lines of a table; a longer table loses its middle.
constexpr int kMostChunks = 32;  // The characters in the cell of one rank.
constexpr int kMostWidth = 88;   // The width of the cells of all ranks together.
constexpr int kMostPairRounds = 12, kMostPairs = 9;

const RankRound& actions_of(const CollectivePlan& plan, int round, int rank) {
  return plan.rounds[static_cast<size_t>(round)][static_cast<size_t>(rank)];
}

int received_chunks(const CollectivePlan& plan, int round, int rank) {
  int count = 0;
  for (const Transfer& transfer : actions_of(plan, round, rank).receives) {
    for (const int source : transfer.sources) count += source != rank ? 1 : 0;
  }
  return count;
}

// The most that a rank receives in a round, in units of the tensor's size.
double most_received(const CollectivePlan& plan, int round) {
  int most = 0;
  for (int rank = 0; rank < plan.world_size; ++rank)
    most = std::max(most, received_chunks(plan, round, rank));
  return static_cast<double>(most) / plan.chunks;
}

double most_received_in_all(const CollectivePlan& plan) {
  int most = 0;
  for (int rank = 0; rank < plan.world_size; ++rank) {
    int sum = 0;
    for (int round = 0; round < static_cast<int>(plan.rounds.size()); ++round)
      sum += received_chunks(plan, round, rank);
    most = std::max(most, sum);
  }
  return static_cast<double>(most) / plan.chunks;
}

// Returns 0..n-1. If there are more than `most` numbers, a -1 replaces those in the middle.
std::vector<int> shortened(int n, int most) {
  std::vector<int> shown;
  for (int i = 0; i < n; ++i) {
    const bool fits = n <= most || i < most - 1 || i == n - 1;
    if (fits)
      shown.push_back(i);
    else if (shown.back() != -1)
      shown.push_back(-1);
  }
  return shown;
}

std::string legend(const CollectivePlan& plan) {
  const bool sums =
      plan.collective == Collective::all_reduce || plan.collective == Collective::reduce_scatter;
  const std::string_view marks =
      sums ? "how many ranks are in the sum (+: more than 9), # all" : ". not there yet, # there";
  return fmt::format("  what each rank holds, a character a chunk: {}\n", marks);
}

// Draws one character per chunk, as the legend says.
std::string cell(const CollectivePlan& plan, const Holdings& holdings, int rank) {
  std::string text;
  for (int chunk = 0; chunk < std::min(plan.chunks, kMostChunks); ++chunk) {
    const int count = holdings.at(rank, chunk).count;
    if (holdings.done(rank, chunk))
      text += '#';
    else if (count == 0)
      text += '.';
    else
      text += count > 9 ? '+' : static_cast<char>('0' + count);
  }
  return plan.chunks > kMostChunks ? text + "..." : text;
}

// Describes the receives: "chunk 2 = sum of ranks 3+0", "chunk 1 from rank 3".
std::string doings(const RankRound& actions) {
  if (actions.receives.empty()) return "nothing";
  std::vector<std::string> parts;
  for (const int i : shortened(static_cast<int>(actions.receives.size()), 3)) {
    if (i < 0) {
      parts.push_back("...");
      continue;
    }
    const auto& [chunk, sources] = actions.receives[static_cast<size_t>(i)];
    if (sources.size() == 1) {
      parts.push_back(fmt::format("chunk {} from rank {}", chunk, sources[0]));
      continue;
    }
    std::vector<std::string> terms;
    for (const int term : shortened(static_cast<int>(sources.size()), 8)) {
      terms.push_back(term < 0 ? "..." : fmt::format("{}", sources[static_cast<size_t>(term)]));
    }
    parts.push_back(fmt::format("chunk {} = sum of ranks {}", chunk, fmt::join(terms, "+")));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Every rank is linked to every other, or all are linked to the root.
std::string star(const CollectivePlan& plan) {
  return plan.collective == Collective::broadcast
             ? fmt::format("  every rank reads rank {}\n", plan.root)
             : "  every rank reads every other rank\n";
}

std::string ring(const CollectivePlan& plan) {
  std::vector<std::string> ranks;
  for (const int i : shortened(plan.world_size, 16)) {
    const int first = plan.collective == Collective::broadcast ? plan.root : 0;
    ranks.push_back(i < 0 ? "..." : fmt::format("{}", (first + i) % plan.world_size));
  }
  const std::string line = fmt::format("{}", fmt::join(ranks, " -> "));
  if (plan.collective == Collective::broadcast) return fmt::format("  {}\n", line);
  return fmt::format("  .-> {} -.\n  '{}'\n", line, std::string(line.size() + 5, '-'));
}

// Lists the ranks of each host, with the leader in brackets: "host 0: [0] 1 2".
std::string hosts(const CollectivePlan& plan) {
  std::string text;
  const auto by_host = ranks_by_host(plan);
  for (const int i : shortened(static_cast<int>(by_host.size()), 8)) {
    if (i < 0) {
      text += "  ...\n";
      continue;
    }
    const auto& ranks = by_host[static_cast<size_t>(i)];
    text +=
        fmt::format("  host {}: [{}]",
                    plan.hosts.empty() ? 0 : plan.hosts[static_cast<size_t>(ranks[0])], ranks[0]);
    for (const int place : shortened(static_cast<int>(ranks.size()), 16)) {
      if (place != 0)
        text += place < 0 ? " ..." : fmt::format(" {}", ranks[static_cast<size_t>(place)]);
    }
    text += "\n";
  }
  return text + "\n";
}

// Lists each pair of linked ranks once, the lower rank first: "0 <-> 1   2 --> 3".
std::vector<std::string> pairs(const CollectivePlan& plan, int round) {
  // [lower rank, higher rank]: whether bytes go up, and whether they go down.
  std::map<std::pair<int, int>, std::pair<bool, bool>> both;
  for (int rank = 0; rank < plan.world_size; ++rank) {
    for (const auto& [chunk, receiver] : actions_of(plan, round, rank).sends) {
      auto& [up, down] = both[{std::min(rank, receiver), std::max(rank, receiver)}];
      (rank < receiver ? up : down) = true;
    }
  }
  std::vector<std::string> drawn;
  for (const auto& [ranks, ways] : both)
    drawn.push_back(fmt::format("{} {} {}", ranks.first,
                                ways.first && ways.second ? "<->"
                                : ways.first              ? "-->"
                                                          : "<--",
                                ranks.second));
  return drawn;
}

std::string pairs_by_round(const CollectivePlan& plan) {
  std::string text;
  for (const int round : shortened(static_cast<int>(plan.rounds.size()), kMostPairRounds)) {
    if (round < 0) {
      text += "  ...\n";
      continue;
    }
    const std::vector<std::string> drawn = pairs(plan, round);
    std::vector<std::string> shown;
    for (const int i : shortened(static_cast<int>(drawn.size()), kMostPairs))
      shown.push_back(i < 0 ? "..." : drawn[static_cast<size_t>(i)]);
    text += fmt::format("  round {:<3}{}\n", round, fmt::join(shown, "   "));
  }
  return text;
}

// Draws which rank reads which, as a picture above the table.
std::string links(const CollectivePlan& plan) {
  switch (plan.algorithm) {
    case Algorithm::naive:
    case Algorithm::direct: return star(plan);
    case Algorithm::ring: return ring(plan);
    case Algorithm::hierarchical: return hosts(plan) + pairs_by_round(plan);
    default: return pairs_by_round(plan);
  }
}

// Draws one line per round: the chunks that the ranks hold after it, and the actions of one rank.
class Table {
 public:
  explicit Table(const CollectivePlan& plan)
      : plan_(plan),
        example_(plan.collective == Collective::broadcast ? (plan.root + 1) % plan.world_size : 0),
        width_(std::max(9, std::min(plan.chunks, kMostChunks + 3) + 2)),
        columns_(shortened(plan.world_size, std::max(3, kMostWidth / width_))) {}

  std::string header() const {
    std::string text = fmt::format("  {:<7}{:<10}", "round", "bytes");
    for (const int rank : columns_)
      text += rank < 0 ? "...  " : fmt::format("{:<{}}", fmt::format("rank {}", rank), width_);
    return text + fmt::format("rank {} takes\n", example_);
  }
  // In round -1 the line shows the state before the first round.
  std::string line(const Holdings& holdings, int round) const {
    std::string text = round < 0
                           ? fmt::format("  {:<7}{:<10}", "start", "")
                           : fmt::format("  {:<7}{:<10}", round,
                                         fmt::format("{:.4g} S", most_received(plan_, round)));
    for (const int rank : columns_)
      text += rank < 0 ? "...  " : fmt::format("{:<{}}", cell(plan_, holdings, rank), width_);
    if (round >= 0) return text + doings(actions_of(plan_, round, example_)) + "\n";
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  }

 private:
  const CollectivePlan& plan_;
  int example_;
  int width_;
  std::vector<int> columns_;  // Ranks; -1 stands for those that are left out.
};

}  // namespace

std::string CollectivePlan::describe() const {
  std::string text = fmt::format("{} by {}: {} rank{}, ", to_string(collective),
                                 to_string(algorithm), world_size, world_size == 1 ? "" : "s");
  const int count = static_cast<int>(rounds.size());
  if (count == 0) return text + "nothing to exchange\n";
  text += fmt::format("{} chunk{}, {} round{}, {:.4g} S received by a rank (S: the tensor)\n\n",
                      chunks, chunks == 1 ? "" : "s", count, count == 1 ? "" : "s",
                      most_received_in_all(*this));
  text += links(*this);
  text += "\n" + legend(*this);

  const Table table(*this);
  Holdings holdings(*this);
  text += table.header() + table.line(holdings, -1);
  int executed = 0;
  for (const int round : shortened(count, kMostRounds)) {
    if (round < 0) {
      text += "  ...\n";
      continue;
    }
    while (executed <= round) holdings.apply(executed++);
    text += table.line(holdings, round);
  }
  return text;
}

}  // namespace trireme::plan
