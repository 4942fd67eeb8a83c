// Which algorithm `auto` means: by path, operation, ranks and hosts, and from the size of the
// tensor. Pure.
#pragma once
#include <trireme/plan/collective_plan.h>
#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme::plan {

// Takes over at this size, until the next choice of its row does.
struct SizeChoice {
  int64_t from_bytes = 0;
  Algorithm algorithm = Algorithm::direct;
  bool operator==(const SizeChoice&) const = default;
};
using SizeChoices = std::vector<SizeChoice>;               // Ascending; the first from 0 bytes.
size_t choose(const SizeChoices& choices, int64_t bytes);  // The number of the one for this size.
std::string describe(const SizeChoices& choices);          // "naive, from 32.8 KB direct"

struct TableKey {
  std::string path;  // threads, shm, tcp: the paths that run plans.
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  int hosts = 1;
  auto operator<=>(const TableKey&) const = default;
};

// What was measured, or is wanted; for whatever has no row the defaults below are taken. A value:
// every rank works with rank 0's.
class CollectiveTable {
 public:
  // Throws Error(invalid_argument) naming `origin` (the file), the row, the field and its value,
  // and the rule.
  static CollectiveTable parse(const std::string& text, const std::string& origin);
  std::string to_text() const;  // JSON that parse() reads, a row a line.

  // Replaces the row. Throws Error(invalid_argument | unsupported) as parse() does.
  void set(const TableKey& key, SizeChoices choices);
  // One algorithm for a collective at any size, whatever the rows say. Throws Error(unsupported) if
  // there is no such plan.
  void always(Collective collective, Algorithm algorithm);
  // The choices for ranks that lie on hosts in this way (empty: on one).
  SizeChoices choices(const std::string& path, Collective collective, int ranks,
                      const std::vector<int>& hosts) const;

  bool operator==(const CollectiveTable&) const = default;

 private:
  std::map<TableKey, SizeChoices> rows_;
  std::map<Collective, Algorithm> always_;  // Not part of the text: a wish of this run.
};

// By the cost model: at each size the cheapest of all algorithms that plan_collective makes (of
// equals, the first in its list).
SizeChoices default_choices(const std::string& path, Collective collective, int ranks,
                            const std::vector<int>& hosts);

struct MeasuredTime {
  int64_t bytes = 0;
  Algorithm algorithm = Algorithm::direct;
  double seconds = 0;
};
// The fastest at each size, sizes ascending. An algorithm stays while it takes at most 5 % longer
// than the fastest, so that noise makes no thresholds; the next takes over half-way (as sizes
// multiply) between the two sizes. `times` must hold one.
SizeChoices fastest_choices(const std::vector<MeasuredTime>& times);

}  // namespace trireme::plan
