// Decides which algorithm `auto` means, by path, collective, ranks, hosts and the size of the
// tensor. The functions are pure.
#pragma once
#include <trireme/plan/collective_plan.h>
#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme::plan {

// An algorithm that applies from this size on, up to the size of the next choice.
struct SizeChoice {
  int64_t from_bytes = 0;
  Algorithm algorithm = Algorithm::direct;
  bool operator==(const SizeChoice&) const = default;
};
using SizeChoices = std::vector<SizeChoice>;  // In ascending order; the first starts at 0 bytes.
// The index of the choice for this size.
size_t choose(const SizeChoices& choices, int64_t bytes);
std::string describe(const SizeChoices& choices);  // "naive, from 32.8 KB direct"

struct TableKey {
  std::string path;  // One of the paths that run plans: threads, shm, tcp.
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  int hosts = 1;
  auto operator<=>(const TableKey&) const = default;
};

// The choices that were measured or are wanted. For a key without a row the defaults below apply.
// The table is a value: every rank works with the table of rank 0.
class CollectiveTable {
 public:
  // Throws Error(invalid_argument) naming `origin` (the file), the row, the field, its value, and
  // the rule.
  static CollectiveTable parse(const std::string& text, const std::string& origin);
  std::string to_text() const;  // JSON that parse() reads, one row per line.

  // Sets the row of the key. Throws Error(invalid_argument | unsupported) as parse() does.
  void set(const TableKey& key, SizeChoices choices);
  // Uses one algorithm for a collective at any size, whatever the rows say. Throws
  // Error(unsupported) if the collective has no such algorithm.
  void always(Collective collective, Algorithm algorithm);
  // The choices for ranks that lie on `hosts`; if `hosts` is empty, all ranks are on one host.
  SizeChoices choices(const std::string& path, Collective collective, int ranks,
                      const std::vector<int>& hosts) const;

  bool operator==(const CollectiveTable&) const = default;

 private:
  std::map<TableKey, SizeChoices> rows_;
  std::map<Collective, Algorithm> always_;  // The text lacks it: it is for this run only.
};

// The choices by the cost model: at each size the cheapest algorithm that plan_collective offers.
// Among equals the first in the list wins.
SizeChoices default_choices(const std::string& path, Collective collective, int ranks,
                            const std::vector<int>& hosts);

struct MeasuredTime {
  int64_t bytes = 0;
  Algorithm algorithm = Algorithm::direct;
  double seconds = 0;
};
// The fastest algorithm at each size, in ascending order of sizes. An algorithm stays while it
// takes at most 5 % longer than the fastest, so that noise makes no thresholds. The next algorithm
// takes over at the geometric mean of the two sizes. `times` must not be empty.
SizeChoices fastest_choices(const std::vector<MeasuredTime>& times);

}  // namespace trireme::plan
