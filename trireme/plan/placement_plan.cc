#include <trireme/plan/placement_plan.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/units.h>
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace trireme::plan {
namespace {

// No piece has more than this part of a server's even share, unless it is smaller than this.
constexpr int64_t kPiecesOfAShare = 8, kSmallestPieceBytes = 64 << 10;
// Pieces of a tensor begin at multiples of so many elements: whole cache lines of float32.
constexpr int64_t kServerPieceElements = 16;

[[noreturn]] void refuse_servers(const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorCode::invalid_argument, "plan", what, remedy);
}
[[noreturn]] void broken_placement(const std::string& what) {
  throw Error(ErrorCode::internal, "plan", "placement on servers: " + what);
}

int64_t up_to(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int64_t all_bytes(const PlacementFacts& facts) {
  int64_t bytes = 0;
  for (const TensorSpec& tensor : facts.tensors)
    bytes += tensor.elements() * bytes_of(tensor.dtype);
  return bytes;
}

int64_t most_bytes_of_a_piece(const PlacementFacts& facts) {
  return std::max(kSmallestPieceBytes, all_bytes(facts) / facts.servers / kPiecesOfAShare);
}

void check_server_facts(const PlacementFacts& facts) {
  if (facts.servers < 1)
    refuse_servers(fmt::format("{} parameter servers", facts.servers), "--ps 1 or more");
  if (facts.replication < 0 || facts.replication > facts.servers)
    refuse_servers(
        fmt::format("ps.replication is {}, but there {} {} parameter server{}", facts.replication,
                    facts.servers == 1 ? "is" : "are", facts.servers,
                    facts.servers == 1 ? "" : "s"),
        fmt::format("1 to {}, or --ps {}", facts.servers, std::max(1, facts.replication)));
  std::set<std::string_view> names;
  for (const TensorSpec& tensor : facts.tensors) {
    if (!names.insert(tensor.name).second)
      refuse_servers(fmt::format("tensor '{}' is there twice", tensor.name));
    for (const int64_t size : tensor.shape)
      if (size < 0)
        refuse_servers(
            fmt::format("tensor '{}' has the shape {}", tensor.name, tensor.describe()));
  }
}

// Cuts each tensor into pieces of nearly equal size.
std::vector<ServerPiece> pieces_of(const PlacementFacts& facts) {
  const int64_t most = most_bytes_of_a_piece(facts);
  std::vector<ServerPiece> pieces;
  for (size_t i = 0; i < facts.tensors.size(); ++i) {
    const int64_t elements = facts.tensors[i].elements(),
                  bytes = elements * bytes_of(facts.tensors[i].dtype);
    const int64_t count = std::max<int64_t>(1, (bytes + most - 1) / most);
    const int64_t each = up_to((elements + count - 1) / count, kServerPieceElements);
    for (int64_t from = 0; from < elements; from += each)
      pieces.push_back({static_cast<int>(i), from, std::min(each, elements - from), 0});
  }
  return pieces;
}

}  // namespace

int64_t PlacementPlan::bytes(const ServerPiece& piece) const {
  return piece.count * bytes_of(facts.tensors[static_cast<size_t>(piece.tensor)].dtype);
}

std::vector<int64_t> PlacementPlan::bytes_of_servers() const {
  std::vector<int64_t> sums(static_cast<size_t>(facts.servers));
  for (const ServerPiece& piece : pieces) sums[static_cast<size_t>(piece.server)] += bytes(piece);
  return sums;
}

double PlacementPlan::imbalance() const {
  const std::vector<int64_t> sums = bytes_of_servers();
  const int64_t all = std::reduce(sums.begin(), sums.end());
  if (all == 0) return 1;
  return static_cast<double>(*std::ranges::max_element(sums)) * facts.servers /
         static_cast<double>(all);
}

std::vector<int> PlacementPlan::chain(int server) const {
  std::vector<int> servers;
  for (int i = 0; i < facts.replication; ++i) servers.push_back((server + i) % facts.servers);
  return servers;
}

// The largest pieces first, each to the server that has least so far (Graham 1969, "Bounds on
// multiprocessing timing anomalies", section 3).
PlacementPlan plan_placement(PlacementFacts facts) {
  check_server_facts(facts);
  if (facts.replication == 0) facts.replication = std::min(2, facts.servers);
  PlacementPlan plan{std::move(facts), {}};
  plan.pieces = pieces_of(plan.facts);
  std::vector<size_t> order(plan.pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return plan.bytes(plan.pieces[a]) > plan.bytes(plan.pieces[b]);
  });
  std::vector<int64_t> loads(static_cast<size_t>(plan.facts.servers));
  for (const size_t i : order) {
    const auto least = std::ranges::min_element(loads);
    plan.pieces[i].server = static_cast<int>(least - loads.begin());
    *least += plan.bytes(plan.pieces[i]);
  }
  return plan;
}

std::string PlacementPlan::describe() const {
  const std::vector<int64_t> sums = bytes_of_servers();
  std::string text = fmt::format(
      "{} parameters in {} tensors and {} pieces on {} server{}: the largest has {:.2f}x the "
      "mean\n",
      [&] {
        int64_t elements = 0;
        for (const ServerPiece& piece : pieces) elements += piece.count;
        return elements;
      }(),
      facts.tensors.size(), pieces.size(), facts.servers, facts.servers == 1 ? "" : "s",
      imbalance());
  for (int server = 0; server < facts.servers; ++server) {
    const auto count = std::ranges::count(pieces, server, &ServerPiece::server);
    text +=
        fmt::format("  ps {:<3} {:>9}  {} piece{}", server,
                    format_bytes(sums[static_cast<size_t>(server)]), count, count == 1 ? "" : "s");
    const std::vector<int> copies = chain(server);
    for (size_t i = 1; i < copies.size(); ++i)
      text += fmt::format("{} ps {}", i == 1 ? ", copies on" : " and", copies[i]);
    text += "\n";
  }
  return text;
}

Json PlacementPlan::to_json() const {
  Json list = Json::array();
  for (const ServerPiece& piece : pieces)
    list.push_back({{"tensor", facts.tensors[static_cast<size_t>(piece.tensor)].name},
                    {"from", piece.from},
                    {"count", piece.count},
                    {"server", piece.server}});
  return {{"servers", facts.servers},
          {"replication", facts.replication},
          {"bytes", bytes_of_servers()},
          {"imbalance", imbalance()},
          {"pieces", std::move(list)}};
}

std::string PlacementPlan::digest() const { return sha256_hex(to_json().dump()).substr(0, 16); }

void check(const PlacementPlan& plan) {
  std::vector<int64_t> next(plan.facts.tensors.size());
  for (const ServerPiece& piece : plan.pieces) {
    const auto tensor = static_cast<size_t>(piece.tensor);
    if (piece.tensor < 0 || tensor >= next.size())
      broken_placement(fmt::format("a piece of tensor {}, which is not there", piece.tensor));
    const std::string& name = plan.facts.tensors[tensor].name;
    if (piece.server < 0 || piece.server >= plan.facts.servers)
      broken_placement(fmt::format("'{}' lives on server {}", name, piece.server));
    if (piece.from != next[tensor] || piece.count < 1)
      broken_placement(fmt::format("'{}': elements {} to {} come after element {}", name,
                                   piece.from, piece.from + piece.count, next[tensor]));
    next[tensor] += piece.count;
  }
  for (size_t i = 0; i < next.size(); ++i)
    if (next[i] != plan.facts.tensors[i].elements())
      broken_placement(fmt::format("{} of the {} elements of '{}' live on a server", next[i],
                                   plan.facts.tensors[i].elements(), plan.facts.tensors[i].name));
  int64_t largest = 0;
  for (const ServerPiece& piece : plan.pieces) largest = std::max(largest, plan.bytes(piece));
  const std::vector<int64_t> sums = plan.bytes_of_servers();
  for (int server = 0; server < plan.facts.servers; ++server) {
    const int64_t has = sums[static_cast<size_t>(server)];
    if (has > all_bytes(plan.facts) / plan.facts.servers + largest)
      broken_placement(
          fmt::format("server {} has {} bytes of {}", server, has, all_bytes(plan.facts)));
    const std::vector<int> copies = plan.chain(server);
    if (copies.empty() || std::set<int>(copies.begin(), copies.end()).size() != copies.size())
      broken_placement(
          fmt::format("the chain of server {} has {} servers", server, copies.size()));
  }
}

}  // namespace trireme::plan
