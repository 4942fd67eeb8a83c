#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/json.h>
#include <trireme/base/units.h>
#include <trireme/config/value.h>
#include <trireme/data/data_kinds.h>
#include <trireme/data/kinds/mixture_options.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace trireme::data {
namespace {

constexpr std::string_view kOfMixture[] = {"sources", "weights_at", "when_exhausted",
                                           "epoch_samples"};

[[noreturn]] void refuse_sources(const std::string& what, const std::string& remedy,
                                 std::string_view key = "data.sources") {
  throw Error(ErrorCode::invalid_argument, "data", fmt::format("{}: {}", key, what), remedy);
}

// A list of objects, as config::Row::has_entries keeps it.
Json entries_in(std::string_view key, const std::string& text) {
  const Json list = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_list = list.is_array() && std::ranges::all_of(list, [](const Json& entry) {
                         return entry.is_object();
                       });
  if (!is_list) refuse_sources("it is not a list of maps", "a list as in docs/input.md", key);
  return list;
}

template <typename Number>
std::optional<Number> number_of(const Json& value) {
  if (value.is_number()) return value.get<Number>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  Number number{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

double weight_in(const Json& value, const std::string& source, std::string_view key) {
  const auto weight = number_of<double>(value);
  if (!weight || !(*weight >= 0) || std::isinf(*weight))
    refuse_sources(fmt::format("the weight of source {} is {}", source, value.dump()),
                   "a finite number of at least 0", key);
  return *weight;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// The kind of an entry. A mixture has data sets, and no mixtures.
std::shared_ptr<const DataKind> kind_of(const Json& entry, const std::string& number) {
  if (!entry.contains("name"))
    refuse_sources(fmt::format("source {} has no name", number),
                   "name: a data set or a format of files, as data.name has it");
  const std::string name = text_of(entry["name"]);
  const auto kind = find_kind_or_null(name);
  if (!kind || kind->uses("data.sources"))
    refuse_sources(fmt::format("source {} has the name {}, {}", number, name,
                               kind ? "which has sources itself" : "and no data set has it"),
                   "name: a data set or a format of files, as data.name has it");
  return kind;
}

class EntryReader {
 public:
  EntryReader(const DataOptions& shared, const Json& entry, const std::string& number)
      : kind_(kind_of(entry, number)),
        has_weights_(find_kind(shared.name)->uses("data.weights_at")),
        entry_(entry) {
    made_.name = entry.contains("as") ? text_of(entry["as"]) : number;
    made_.options = shared;
    made_.options.name = kind_->name;
    // The test part of a mixture is its own.
    made_.options.path = made_.options.test_path = "";
    for (std::string* const own : {&made_.options.sources, &made_.options.weights_at})
      own->clear();
  }

  SourceOptions read() {
    for (const auto& [word, value] : entry_.items()) {
      if ((word == "weight" && has_weights_) || word == "as" || word == "name") continue;
      set(word, value);
    }
    return std::move(made_);
  }

 private:
  void set(const std::string& word, const Json& value) {
    const config::Table& table = config::table_of<DataOptions>();
    const config::Row* const row = table.find("data." + word);
    const bool is_of_mixture = std::ranges::find(kOfMixture, word) != std::end(kOfMixture);
    if (!row || is_of_mixture || !is_of_kind(*row))
      refuse_sources(
          fmt::format("source {} has the key {}, which {}", made_.name, word,
                      row && !is_of_mixture ? fmt::format("data.name={} does not use", kind_->name)
                                            : "no source has"),
          fmt::format("{}", fmt::join(known_words(table), ", ")));
    if (!value.is_string() && !value.is_number() && !value.is_boolean())
      refuse_sources(fmt::format("source {} has for {} more than one value", made_.name, word),
                     "one value");
    with_source(made_.name, [&] {
      config::set_value(table, &made_.options, *row,
                        {.key = "data." + word, .text = text_of(value), .origin = "its entry"});
      return 0;
    });
  }

  bool is_of_kind(const config::Row& row) const {
    return row.only_for.selector.empty() || kind_->uses(row.name);
  }

  std::vector<std::string> known_words(const config::Table& table) const {
    std::vector<std::string> words{"weight", "as"};
    for (const config::Row& row : table.rows()) {
      const std::string word(row.name.substr(row.name.find('.') + 1));
      if (is_of_kind(row) && std::ranges::find(kOfMixture, word) == std::end(kOfMixture))
        words.push_back(word);
    }
    return words;
  }

  std::shared_ptr<const DataKind> kind_;
  bool has_weights_;
  const Json& entry_;
  SourceOptions made_;
};

size_t index_of_source(const std::vector<SourceOptions>& sources, const std::string& name) {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].name == name) return i;
    names.emplace_back(sources[i].name);
  }
  const std::string near = nearest_word(name, names.data(), names.size());
  refuse_sources(fmt::format("there is no source \"{}\"", name),
                 near.empty() ? fmt::format("{}", fmt::join(names, ", ")) : near,
                 "data.weights_at");
}

void require_sum(const plan::Weights& part, std::string_view key) {
  double sum = 0;
  for (const double weight : part.weights) sum += weight;
  if (!(sum > 0) || std::isinf(sum))
    refuse_sources(fmt::format("the weights from epoch {}, sample {} add up to {}",
                               part.from.epoch, part.from.consumed, sum),
                   "a weight above 0", key);
}

plan::Weights change_of(const Json& entry, plan::Weights part,
                        const std::vector<SourceOptions>& sources) {
  constexpr std::string_view kKey = "data.weights_at";
  for (const auto& [word, value] : entry.items())
    if (word != "epoch" && word != "sample" && word != "weights")
      refuse_sources(fmt::format("there is no key {}", word), "epoch, sample and weights", kKey);
  const auto place = [&](const char* word) {
    if (!entry.contains(word)) return int64_t{0};
    const auto number = number_of<int64_t>(entry[word]);
    if (!number || *number < 0)
      refuse_sources(fmt::format("{} is {}", word, entry[word].dump()),
                     "a whole number of at least 0", kKey);
    return *number;
  };
  part.from = {place("epoch"), place("sample")};
  const Json weights = entry.contains("weights") ? entry["weights"] : Json();
  if (weights.is_object()) {
    for (const auto& [name, weight] : weights.items())
      part.weights[index_of_source(sources, name)] = weight_in(weight, name, kKey);
  } else if (weights.is_array() && weights.size() == sources.size()) {
    for (size_t i = 0; i < sources.size(); ++i)
      part.weights[i] = weight_in(weights[i], sources[i].name, kKey);
  } else {
    refuse_sources(fmt::format("the weights are {}, and there are {} sources", weights.dump(),
                               sources.size()),
                   "a list with a weight for each source, or a map with names of sources", kKey);
  }
  require_sum(part, kKey);
  return part;
}

}  // namespace

std::vector<SourceOptions> sources_of(const DataOptions& options) {
  if (options.sources.empty())
    refuse_sources(fmt::format("data.name is {}, and there are no sources", options.name),
                   "a list of maps such as {name: csv, path: a.csv, weight: 2}");
  std::vector<SourceOptions> sources;
  for (const Json& entry : entries_in("data.sources", options.sources)) {
    SourceOptions source =
        EntryReader(options, entry, fmt::format("{}", sources.size() + 1)).read();
    for (const SourceOptions& other : sources)
      if (other.name == source.name)
        refuse_sources(fmt::format("two sources have the name {}", source.name),
                       "another name with `as` in one of them");
    sources.push_back(std::move(source));
  }
  if (sources.empty()) refuse_sources("there are no sources", "at least one");
  return sources;
}

std::string sources_with(const std::string& sources,
                         const std::vector<std::optional<std::string>>& stages) {
  if (sources.empty()) return sources;
  Json entries = entries_in("data.sources", sources);
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i].erase("cache");
    if (i < stages.size() && stages[i]) entries[i]["stages"] = *stages[i];
  }
  return entries.dump();
}

std::vector<plan::Weights> weights_of(const DataOptions& options,
                                      const std::vector<SourceOptions>& sources) {
  std::vector<plan::Weights> weights(1);
  size_t i = 0;
  for (const Json& entry : entries_in("data.sources", options.sources))
    weights[0].weights.push_back(
        entry.contains("weight") ? weight_in(entry["weight"], sources[i++].name, "data.sources")
                                 : (++i, 1.0));
  require_sum(weights[0], "data.sources");
  if (options.weights_at.empty()) return weights;
  for (const Json& entry : entries_in("data.weights_at", options.weights_at)) {
    plan::Weights next = change_of(entry, weights.back(), sources);
    if (!plan::is_before(weights.back().from, next.from))
      refuse_sources(
          fmt::format("epoch {}, sample {} is not behind epoch {}, sample {}", next.from.epoch,
                      next.from.consumed, weights.back().from.epoch, weights.back().from.consumed),
          "positions in ascending order, behind the start", "data.weights_at");
    weights.push_back(std::move(next));
  }
  return weights;
}

}  // namespace trireme::data
