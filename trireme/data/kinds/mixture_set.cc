#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/hash.h>
#include <trireme/data/input_memory.h>
#include <trireme/data/kinds/mixture_options.h>
#include <trireme/data/kinds/mixture_set.h>
#include <trireme/data/kinds/mixture_stages.h>
#include <trireme/records/remote/address.h>
#include <algorithm>
#include <string_view>
#include <utility>

namespace trireme::data {
namespace {

// Keys that name files stand in an entry alone.
constexpr std::string_view kFiles[] = {"data.images", "data.labels", "data.test_images",
                                       "data.test_labels"};

[[noreturn]] void refuse_source(const std::string& source, const std::string& what,
                                const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("data.sources: source {}: {}", source, what), remedy);
}

// Sources with the parts that are read for the test.
std::vector<SourceOptions> sources_to_read(const DataOptions& options) {
  std::vector<SourceOptions> sources = sources_with_stages(options);
  const auto count = static_cast<int64_t>(sources.size());
  for (SourceOptions& source : sources) {
    if (source.options.service != options.service)
      refuse_source(source.name, "a data service makes the samples of the whole mixture",
                    "data.service beside data.sources, and not in them");
    source.options.service = DataOptions().service;
    if (!options.test_path.empty()) {
      if (!source.options.test_path.empty())
        refuse_source(source.name, "it has a test_path, and there is data.test_path too",
                      "one of the two");
      source.options.test_fraction = 0;
    }
    // Each source has a cache of its own.
    if (options.cache_bytes >= 0)
      source.options.cache_bytes = options.cache_bytes / count;
    else
      source.options.memory_bytes = input_memory(options.memory_bytes) / count;
  }
  if (!options.test_path.empty()) {
    const auto kind = find_kind(sources[0].options.name);
    if (!kind->uses("data.test_path"))
      refuse_source(sources[0].name,
                    fmt::format("data.test_path has the format of the first source, and {} takes "
                                "no test_path",
                                kind->name),
                    "no data.test_path: a part of each source is held out");
    sources[0].options.test_path = options.test_path;
  }
  return sources;
}

void check_mixture_set(const DataOptions& options) {
  check_cache(options);
  const std::vector<SourceOptions> sources = sources_to_read(options);
  weights_of(options, sources);
  if (options.epoch_samples > 0 && options.when_exhausted != "repeat")
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("data.epoch_samples is {}, and data.when_exhausted is {}, which "
                            "decides the length of an epoch itself",
                            options.epoch_samples, options.when_exhausted),
                "data.epoch_samples=auto, or data.when_exhausted=repeat");
  for (const SourceOptions& source : sources)
    with_source(source.name, [&] {
      if (const auto kind = find_kind(source.options.name); kind->check)
        kind->check(source.options);
      return 0;
    });
}

std::string form_of(const Dataset& data) {
  return fmt::format(
      "{} [{}]{}{} with {}",
      data.has_tokens ? std::string("tokens")
      : data.input.type == plan::DType::float32
          ? std::string("numbers")
          : fmt::format("{} numbers", plan::to_string(data.input.type)),
      data.input.is_ragged ? std::string("of any length")
                           : fmt::format("{}", fmt::join(data.input.shape, ", ")),
      data.input.categories > 0 ? fmt::format(" and {} categories", data.input.categories) : "",
      data.input.is_packed ? " in packs" : "", data.has_values ? "values" : "classes");
}

void require_one_form(const std::vector<SourceOptions>& sources,
                      const std::vector<Dataset>& sets) {
  for (size_t i = 1; i < sets.size(); ++i) {
    if (form_of(sets[i]) != form_of(sets[0]))
      refuse_source(sources[i].name,
                    fmt::format("its samples are {}, and those of source {} are {}",
                                form_of(sets[i]), sources[0].name, form_of(sets[0])),
                    "stages that give all samples one shape, or data.inputs and data.target");
    if (sets[i].class_names == sets[0].class_names) continue;
    const auto names = [](const Dataset& data) {
      const auto count = std::min<size_t>(data.class_names.size(), 5);
      return data.class_names.empty()
                 ? std::string("no names")
                 : fmt::format(
                       "{}{}",
                       fmt::join(data.class_names.begin(),
                                 data.class_names.begin() + static_cast<int64_t>(count), ", "),
                       count < data.class_names.size() ? ", ..." : "");
    };
    refuse_source(sources[i].name,
                  fmt::format("its {} classes are {}, and the {} of source {} are {}",
                              sets[i].class_names.size(), names(sets[i]),
                              sets[0].class_names.size(), sources[0].name, names(sets[0])),
                  sets[0].has_tokens ? "data.tokens=bytes, so that tokens mean the same"
                                     : "the same classes in the same order");
  }
}

// The samples are padded together, so their targets must all have a length or none.
void leave_padding_to_mixture(const std::vector<SourceOptions>& sources, MixtureParts& parts) {
  if (!find_stage(parts.stages.train, "pad") && !find_stage(parts.stages.test, "pad")) return;
  const auto of = [&](size_t i) -> RecordParts& {
    if (auto* const records = std::any_cast<RecordParts>(&parts.sets[i].samples)) return *records;
    refuse_source(sources[i].name,
                  fmt::format("the stage pad needs records with lengths, and {} has none",
                              sources[i].options.name),
                  "sources with files of records");
  };
  for (size_t i = 0; i < parts.sets.size(); ++i) {
    of(i).keeps_lengths = true;
    if (of(i).target_has_length != of(0).target_has_length)
      refuse_source(sources[i].name,
                    fmt::format("the stage pad: its targets {} lengths of their own, and those of "
                                "source {} {}",
                                of(i).target_has_length ? "have" : "have no", sources[0].name,
                                of(0).target_has_length ? "have" : "have none"),
                    "targets of one form (data.target)");
  }
}

// The lengths of the mixture's samples, by their numbers in it.
std::shared_ptr<const plan::LengthBatches> lengths_of(const Dataset& data,
                                                      const MixtureParts& parts) {
  if (!find_stage(parts.stages.train, "bucket")) return nullptr;
  plan::LengthBatches all = *parts.sets[0].by_length;  // Their options are the same.
  std::string contents;
  std::vector<std::function<int64_t(int64_t)>> lengths;
  for (const Dataset& set : parts.sets) {
    contents += set.by_length->content + "\n";
    lengths.push_back(set.by_length->length);
  }
  all.content = sha256_hex(contents).substr(0, 16);
  all.length = [mixture = data.mixture, lengths = std::move(lengths)](int64_t number) {
    // A number stands for the same sample in every epoch; only its pass is another one.
    const plan::Mixture::Sample sample = mixture->sample_of(0, number);
    return lengths[sample.source](sample.index);
  };
  return std::make_shared<const plan::LengthBatches>(std::move(all));
}

// Everything of a source that decides about its samples.
std::string content_of(const SourceOptions& source, const Dataset& data) {
  const DataOptions& o = source.options;
  const bool holds_out = !data.split.test.empty();
  return Json{{"content", data.content},
              {"inputs", o.inputs},
              {"target", o.target},
              {"held_out", holds_out ? fmt::format("{} {}", o.test_fraction, o.split_seed) : ""}}
      .dump();
}

plan::MixtureOptions plan_options_of(const DataOptions& options,
                                     const std::vector<SourceOptions>& sources,
                                     const std::vector<Dataset>& sets) {
  plan::MixtureOptions mixture{.sources = {},
                               .weights = weights_of(options, sources),
                               .when = plan::when_exhausted(options.when_exhausted),
                               .samples = std::max<int64_t>(0, options.epoch_samples)};
  for (size_t i = 0; i < sets.size(); ++i)
    mixture.sources.push_back({sources[i].name, sets[i].train_samples, {}});
  return mixture;
}

void add_up(const std::vector<SourceOptions>& sources, const MixtureParts& parts, Dataset& data) {
  std::string content, test_content;
  data.input = parts.sets[0].input;
  data.has_tokens = parts.sets[0].has_tokens;
  data.has_values = parts.sets[0].has_values;
  data.has_target = parts.sets[0].has_target;
  for (const Stage& stage : parts.stages.train)  // Mixed samples have probabilities of classes.
    if (stage.form->kind == StageKind::mix) data.has_values = false;
  data.class_names = parts.sets[0].class_names;
  for (size_t i = 0; i < parts.sets.size(); ++i) {
    const Dataset& one = parts.sets[i];
    content += content_of(sources[i], one) + "\n";
    data.input.classes = std::max(data.input.classes, one.input.classes);
    if (data.input.is_ragged)  // As long as the longest sample of all.
      data.input.shape[0] = std::max(data.input.shape[0], one.input.shape[0]);
    const auto add_uneven = [&](std::string& all, const std::string& own) {
      if (all.empty() && !own.empty()) all = fmt::format("source {}: {}", sources[i].name, own);
    };
    add_uneven(data.uneven, one.uneven);
    if (parts.uses_test(i)) add_uneven(data.uneven_test, one.uneven_test);
    data.source_blocks.push_back(one.train_blocks);
    const int64_t tests = parts.uses_test(i) ? one.test_samples : 0;
    data.test_samples += tests;
    if (tests > 0 && !one.test_content.empty()) test_content += one.test_content + "\n";
    data.about +=
        fmt::format("source {}: {} {} with {} samples, and {} of the test part\n", sources[i].name,
                    sources[i].options.name, records::shown_path(sources[i].options.path),
                    one.train_samples, tests) +
        one.about;
    Json facts{{"name", sources[i].name},
               {"format", sources[i].options.name},
               {"samples", one.train_samples},
               {"test_samples", tests}};
    if (!one.facts.is_null()) facts.update(one.facts);
    data.facts["sources"].push_back(std::move(facts));
  }
  data.content = sha256_hex(content);
  if (!test_content.empty()) data.test_content = sha256_hex(test_content);
}

// Its cache has a part of the memory, but its images may be as large as those of a data set that
// stands alone.
Dataset read_source_set(DataOptions own, int64_t memory_bytes) {
  const int64_t part = std::exchange(own.memory_bytes, memory_bytes);
  Dataset set = find_kind(own.name)->read(own);
  if (auto* const records = std::any_cast<RecordParts>(&set.samples))
    records->options.memory_bytes = part;
  return set;
}

Dataset read_mixture_set(const DataOptions& options) {
  check_mixture_set(options);
  const std::vector<SourceOptions> sources = sources_to_read(options);
  MixtureParts parts{.options = options,
                     .stages = batch_stages_of(options),
                     .has_own_test = !options.test_path.empty()};
  for (const SourceOptions& source : sources) {
    parts.kinds.push_back(source.options.name);
    parts.sets.push_back(with_source(
        source.name, [&] { return read_source_set(source.options, options.memory_bytes); }));
  }
  if (parts.sets[0].has_tokens) refuse_mixed_tokens(parts.stages.train);
  require_one_form(sources, parts.sets);
  leave_padding_to_mixture(sources, parts);
  Dataset data;
  add_up(sources, parts, data);
  data.mixture =
      std::make_shared<const plan::Mixture>(plan_options_of(options, sources, parts.sets));
  data.train_samples = data.mixture->samples();
  data.by_length = lengths_of(data, parts);
  data.samples = std::move(parts);
  require_training_samples(data);
  return data;
}

}  // namespace

std::vector<DataOptions> sets_of(const DataOptions& options) {
  if (options.sources.empty()) return {options};
  std::vector<DataOptions> sets;
  const bool is_zip = !find_kind(options.name)->uses("data.weights_at");
  for (SourceOptions& source : is_zip ? sources_of(options) : sources_with_stages(options))
    sets.push_back(std::move(source.options));
  return sets;
}

int caches_in_memory(const DataOptions& options) {
  return 2 * static_cast<int>(std::ranges::count_if(sets_of(options), keeps_in_memory));
}

DataKind mixture_kind(const std::vector<DataKind>& others) {
  DataKind kind{
      .name = "mixture",
      .about = "several data sets in stated shares",
      .path = "nothing; data.sources has the paths.",
      .keys = {"data.sources", "data.weights_at", "data.when_exhausted", "data.epoch_samples"},
      .holder = "data.sources has",
      .has_blocks = true,
      .check = check_mixture_set,
      .read = read_mixture_set};
  for (const DataKind& other : others)
    for (const std::string_view key : other.keys)
      if (!kind.uses(key) && std::ranges::find(kFiles, key) == std::end(kFiles))
        kind.keys.push_back(key);
  return kind;
}

}  // namespace trireme::data
