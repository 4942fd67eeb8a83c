#include <trireme/plan/collective_table.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/plan/collective_cost.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace trireme::plan {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "plan", what, remedy);
}

template <typename Named>
std::vector<std::string_view> names_of(std::span<const Named> all) {
  std::vector<std::string_view> names;
  for (const Named each : all) names.push_back(to_string(each));
  return names;
}

// `place` names the row in a file; it is empty outside a file.
void check_row(const std::string& place, const TableKey& key, const SizeChoices& choices) {
  const auto paths = paths_with_plans();
  if (std::find(paths.begin(), paths.end(), key.path) == paths.end())
    refuse(fmt::format("{}path is '{}', which runs no collective plans", place, key.path),
           fmt::format("{}", fmt::join(paths, ", ")));
  if (key.ranks < 1)
    refuse(fmt::format("{}ranks is {}, and must be at least 1", place, key.ranks),
           "the ranks it was measured with");
  if (key.hosts < 1 || key.hosts > key.ranks)
    refuse(
        fmt::format("{}hosts is {}, and must be 1 to {}, the ranks", place, key.hosts, key.ranks),
        "the hosts that the ranks lie on");
  if (choices.empty() || choices.front().from_bytes != 0)
    refuse(fmt::format("{}nothing is chosen for tensors from 0 bytes", place),
           "a first choice with from_bytes 0");
  const auto fits = algorithms_of(key.collective);
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0 && choices[i].from_bytes <= choices[i - 1].from_bytes)
      refuse(fmt::format("{}from_bytes {} does not come after {}", place, choices[i].from_bytes,
                         choices[i - 1].from_bytes),
             "choices in ascending order");
    if (std::find(fits.begin(), fits.end(), choices[i].algorithm) == fits.end())
      refuse(fmt::format("{}there is no {} by algorithm '{}'", place, to_string(key.collective),
                         to_string(choices[i].algorithm)),
             fmt::format("one of {}", fmt::join(names_of<Algorithm>(fits), ", ")));
  }
}

// Reads the fields of a row. Its errors name the row and the field.
class Fields {
 public:
  Fields(const Json& row, std::string place) : row_(row), place_(std::move(place)) {
    if (!row.is_object())
      refuse(fmt::format("{} is {}, and must be an object", place_, row.dump()),
             "a row as --tune writes them");
  }
  std::string text(const std::string& name) const {
    const Json& value = need(name);
    if (!value.is_string())
      refuse(fmt::format("{}: {} is {}, and must be a word", place_, name, value.dump()),
             "a quoted name");
    return value.get<std::string>();
  }
  int64_t whole(const std::string& name, int64_t most) const {
    const Json& value = need(name);
    if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > most)
      refuse(fmt::format("{}: {} is {}, and must be a whole number from 0 to {}", place_, name,
                         value.dump(), most),
             "a number as --tune writes it");
    return value.get<int64_t>();
  }
  template <typename Named>
  Named one_of(const std::string& name, std::span<const Named> all) const {
    const std::string word = text(name);
    for (const Named each : all)
      if (to_string(each) == word) return each;
    refuse(fmt::format("{}: {} is '{}'", place_, name, word),
           fmt::format("one of {}", fmt::join(names_of(all), ", ")));
  }
  const Json& list(const std::string& name) const {
    const Json& value = need(name);
    if (!value.is_array())
      refuse(fmt::format("{}: {} is {}, and must be a list", place_, name, value.dump()), "[...]");
    return value;
  }
  void has_only(std::initializer_list<std::string_view> names) const {
    for (const auto& item : row_.items()) {
      if (std::find(names.begin(), names.end(), item.key()) == names.end())
        refuse(fmt::format("{}: '{}' is not known here", place_, item.key()),
               fmt::format("{}", fmt::join(names, ", ")));
    }
  }

 private:
  const Json& need(const std::string& name) const {
    const auto found = row_.find(name);
    if (found == row_.end())
      refuse(fmt::format("{}: {} is missing", place_, name), "a row as --tune writes them");
    return *found;
  }
  const Json& row_;
  std::string place_;
};

SizeChoices read_choices(const Fields& row, const std::string& place) {
  SizeChoices choices;
  for (const Json& item : row.list("choices")) {
    const Fields choice(item, fmt::format("{}, choice {}", place, choices.size()));
    choice.has_only({"from_bytes", "algorithm"});
    choices.push_back({choice.whole("from_bytes", std::numeric_limits<int64_t>::max()),
                       choice.one_of("algorithm", all_algorithms())});
  }
  return choices;
}

std::pair<TableKey, SizeChoices> read_row(const Json& item, const std::string& place) {
  constexpr int64_t kMostRanks = std::numeric_limits<int>::max();
  const Fields row(item, place);
  row.has_only({"path", "collective", "ranks", "hosts", "choices"});
  const TableKey key{row.text("path"), row.one_of("collective", all_collectives()),
                     static_cast<int>(row.whole("ranks", kMostRanks)),
                     static_cast<int>(row.whole("hosts", kMostRanks))};
  return {key, read_choices(row, place)};
}

}  // namespace

size_t choose(const SizeChoices& choices, int64_t bytes) {
  const auto after = std::upper_bound(
      choices.begin(), choices.end(), bytes,
      [](int64_t size, const SizeChoice& choice) { return size < choice.from_bytes; });
  return static_cast<size_t>(after - choices.begin()) - 1;
}

std::string describe(const SizeChoices& choices) {
  std::vector<std::string> parts;
  for (const SizeChoice& choice : choices)
    parts.push_back(choice.from_bytes == 0
                        ? std::string(to_string(choice.algorithm))
                        : fmt::format("from {} {}", format_bytes(choice.from_bytes),
                                      to_string(choice.algorithm)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

CollectiveTable CollectiveTable::parse(const std::string& text, const std::string& origin) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded())
    refuse(fmt::format("{} is not JSON", origin),
           "a file that trireme bench collectives --tune wrote");
  const Fields file(json, origin);
  file.has_only({"rows"});
  CollectiveTable table;
  for (const Json& item : file.list("rows")) {
    const std::string place = fmt::format("{}: row {}", origin, table.rows_.size());
    const auto [key, choices] = read_row(item, place);
    check_row(place + ": ", key, choices);
    if (!table.rows_.emplace(key, choices).second)
      refuse(fmt::format("{}: another row has the same path, collective, ranks and hosts", place),
             "one row for each combination");
  }
  return table;
}

std::string CollectiveTable::to_text() const {
  std::vector<std::string> lines;
  for (const auto& [key, choices] : rows_) {
    Json row = {{"path", key.path},
                {"collective", to_string(key.collective)},
                {"ranks", key.ranks},
                {"hosts", key.hosts}};
    row["choices"] = Json::array();
    for (const SizeChoice& choice : choices)
      row["choices"].push_back(
          {{"from_bytes", choice.from_bytes}, {"algorithm", to_string(choice.algorithm)}});
    lines.push_back("  " + row.dump());
  }
  return fmt::format("{{\"rows\": [\n{}\n]}}\n", fmt::join(lines, ",\n"));
}

void CollectiveTable::set(const TableKey& key, SizeChoices choices) {
  check_row("", key, choices);
  rows_[key] = std::move(choices);
}

void CollectiveTable::always(Collective collective, Algorithm algorithm) {
  plan_collective(collective, algorithm, 1);  // Throws if there is no such algorithm.
  always_[collective] = algorithm;
}

SizeChoices CollectiveTable::choices(const std::string& path, Collective collective, int ranks,
                                     const std::vector<int>& hosts) const {
  if (const auto wanted = always_.find(collective); wanted != always_.end())
    return {{0, wanted->second}};
  const int host_count =
      hosts.empty() ? 1 : static_cast<int>(std::set<int>(hosts.begin(), hosts.end()).size());
  const auto row = rows_.find({path, collective, ranks, host_count});
  return row != rows_.end() ? row->second : default_choices(path, collective, ranks, hosts);
}

SizeChoices default_choices(const std::string& path, Collective collective, int ranks,
                            const std::vector<int>& hosts) {
  const PathCost prices = cost_of_path(path);
  const std::vector<Algorithm> algorithms = algorithms_of(collective);
  std::vector<CollectiveCost> lines;
  for (const Algorithm algorithm : algorithms)
    lines.push_back(cost(plan_collective(collective, algorithm, ranks, 0, hosts), prices));

  // This follows the lower envelope of the lines: from each line it goes on to the line that first
  // falls below it.
  size_t best = 0;
  for (size_t i = 1; i < lines.size(); ++i)
    if (lines[i].fixed_seconds < lines[best].fixed_seconds ||
        (lines[i].fixed_seconds == lines[best].fixed_seconds &&
         lines[i].seconds_per_byte < lines[best].seconds_per_byte))
      best = i;
  SizeChoices choices{{0, algorithms[best]}};
  for (;;) {
    double nearest = std::numeric_limits<double>::infinity();
    size_t next = best;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].seconds_per_byte >= lines[best].seconds_per_byte) continue;
      const double crossing = (lines[i].fixed_seconds - lines[best].fixed_seconds) /
                              (lines[best].seconds_per_byte - lines[i].seconds_per_byte);
      if (crossing < nearest) nearest = crossing, next = i;
    }
    constexpr double kLargest = 1e15;  // No tensor is that large.
    if (next == best || nearest > kLargest) return choices;
    best = next;
    const auto from =
        std::max(static_cast<int64_t>(std::ceil(nearest)), choices.back().from_bytes + 1);
    choices.push_back({from, algorithms[best]});
  }
}

SizeChoices fastest_choices(const std::vector<MeasuredTime>& times) {
  constexpr double kSlack = 1.05;
  std::map<int64_t, std::map<Algorithm, double>> by_size;
  for (const MeasuredTime& time : times) by_size[time.bytes][time.algorithm] = time.seconds;
  SizeChoices choices;
  int64_t last_size = 0;
  for (const auto& [bytes, seconds] : by_size) {
    const auto best =
        std::min_element(seconds.begin(), seconds.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (choices.empty()) {
      choices.push_back({0, best->first});
    } else {
      const auto current = seconds.find(choices.back().algorithm);
      const bool stays = current != seconds.end() && current->second <= kSlack * best->second;
      const double half_way =
          std::sqrt(static_cast<double>(last_size) * static_cast<double>(bytes));
      if (!stays) choices.push_back({static_cast<int64_t>(std::ceil(half_way)), best->first});
    }
    last_size = bytes;
  }
  return choices;
}

}  // namespace trireme::plan
