#include <trireme/run/pipeline.h>

#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/base/log.h>
#include <trireme/comm/dtype.h>
#include <trireme/data/data_kinds.h>
#include <trireme/data/pipeline/stage.h>
#include <trireme/data/source_makers.h>
#include <trireme/run/data_service.h>
#include <trireme/run/dataset.h>
#include <trireme/run/input_plan.h>
#include <trireme/run/place_cache.h>
#include <trireme/train/generation.h>
#include <array>
#include <atomic>
#include <set>

namespace trireme {
namespace {

// Keys of the batches, which sources of a mixture have in common.
constexpr std::array<std::string_view, 5> kKeysOfBatches{"batch", "shuffle", "window", "threads",
                                                         "prefetch"};

constexpr std::string_view kFunction = "pipeline function ";

std::string next_function_name() {
  static std::atomic<int> made{0};
  return fmt::format("{}{}", kFunction, ++made);
}

// Replaces the numbers of functions in a text, which are those of the process, by their places in
// the pipeline. `places` has those that were found before.
void number_by_place(std::string& text, std::map<std::string, std::string>& places) {
  for (size_t at = text.find(kFunction); at != std::string::npos; at = text.find(kFunction, at)) {
    const size_t end = text.find_first_not_of("0123456789", at + kFunction.size());
    const std::string name = text.substr(at, end - at);
    const std::string place = fmt::format("function {}", places.size() + 1);
    const std::string& known = places.try_emplace(name, place).first->second;
    text.replace(at, name.size(), known);
    at += known.size();
  }
}

// The rules of a configuration ask for a model that takes the samples.
Config config_of(std::vector<std::string> settings, const data::DataKind& kind, uint64_t seed) {
  settings.push_back(fmt::format("train.seed={}", seed));
  if (kind.has_tokens) settings.emplace_back("model.name=gpt");
  return load_config({{}, settings});
}

Json entry_of(const std::map<std::string, std::string>& values) {
  Json entry = Json::object();
  for (const auto& [key, value] : values) {
    if (std::ranges::find(kKeysOfBatches, key) != kKeysOfBatches.end())
      throw Error(
          ErrorCode::invalid_argument, "data",
          fmt::format("a source of a pipeline has data.{}, which is that of all sources", key),
          fmt::format("set {} behind zip() or mix()", key));
    entry[key] = value;
  }
  return entry;
}

}  // namespace

Pipeline::Pipeline(std::string_view name, std::string_view path) {
  values_["name"] = data::find_kind(std::string(name))->name;
  values_["path"] = path;
}

Pipeline Pipeline::zip(const std::vector<Pipeline>& entries) {
  Json sources = Json::array();
  for (const Pipeline& entry : entries) sources.push_back(entry_of(entry.values_));
  Pipeline zipped;
  zipped.values_ = {{"name", "zip"}, {"sources", sources.dump()}};
  return zipped;
}

Pipeline Pipeline::mix(const std::vector<std::pair<double, Pipeline>>& sources) {
  Json all = Json::array();
  for (const auto& [weight, source] : sources) {
    Json entry = entry_of(source.values_);
    entry["weight"] = weight;
    all.push_back(std::move(entry));
  }
  Pipeline mixture;
  mixture.values_ = {{"name", "mixture"}, {"sources", all.dump()}};
  return mixture;
}

Pipeline Pipeline::then(std::string_view stages) const {
  data::parse_stages("a pipeline", std::string(stages));
  Pipeline longer = *this;
  std::string& all = longer.values_["stages"];
  all += all.empty() ? "" : " | ";
  all += stages;
  return longer;
}

Pipeline Pipeline::then_with(std::string_view stage, const std::string& value) const {
  return then(fmt::format("{}({})", stage, value));
}

Pipeline Pipeline::decode_record(const std::vector<int64_t>& shape, DecodeFunction function,
                                 const std::string& version) const {
  const std::string name = next_function_name();
  register_decode(name, std::move(function), version);
  return then_with("decode_record", fmt::format("{}, {}", name, fmt::join(shape, ":")));
}
Pipeline Pipeline::map(MapFunction function, const std::string& version) const {
  const std::string name = next_function_name();
  register_map(name, std::move(function), version);
  return then_with("map", name);
}
Pipeline Pipeline::random_map(MapFunction function, const std::string& version) const {
  const std::string name = next_function_name();
  register_map(name, std::move(function), version);
  return then_with("random_map", name);
}
Pipeline Pipeline::filter(FilterFunction function, const std::string& version) const {
  const std::string name = next_function_name();
  register_filter(name, std::move(function), version);
  return then_with("filter", name);
}

Pipeline Pipeline::cache(std::string_view place) const {
  return then_with("cache", std::string(place));
}
Pipeline Pipeline::take(int64_t samples) const {
  return then_with("take", std::to_string(samples));
}
Pipeline Pipeline::repeat(int64_t times) const {
  return then_with("repeat", std::to_string(times));
}
Pipeline Pipeline::pack(int64_t tokens) const { return then_with("pack", std::to_string(tokens)); }
Pipeline Pipeline::bucket(int64_t window) const {
  return then_with("bucket", std::to_string(window));
}
Pipeline Pipeline::pad(int64_t multiple) const {
  return then_with("pad", std::to_string(multiple));
}

Pipeline Pipeline::shuffle(std::string_view order) const { return set("shuffle", order); }
Pipeline Pipeline::batch(int64_t samples) const { return set("batch", std::to_string(samples)); }
Pipeline Pipeline::prefetch(int threads, int batches) const {
  return set("threads", std::to_string(threads)).set("prefetch", std::to_string(batches));
}

Pipeline Pipeline::set(std::string_view key, std::string_view value) const {
  Pipeline other = *this;
  other.values_[std::string(key)] = value;
  return other;
}

std::vector<std::string> Pipeline::settings() const {
  std::vector<std::string> all;
  for (const auto& [key, value] : values_) all.push_back(fmt::format("data.{}={}", key, value));
  return all;
}

std::string Pipeline::describe() const { return fmt::format("{}", fmt::join(settings(), "\n")); }

std::string Pipeline::digest() const {
  const Config config = config_of(settings(), *data::find_kind(values_.at("name")), 0);
  InputPlan plan = input_plan_of(config);
  std::map<std::string, std::string> places;
  for (std::string& set : plan.sets) number_by_place(set, places);
  std::set<std::string> versions;
  for (const data::Stage& stage : stages_with_functions(config)) {
    const data::FunctionVersions version = data::versions_of_functions({stage});
    std::string function = stage.word("function");
    number_by_place(function, places);
    if (version.without_version.empty())
      versions.insert(fmt::format("{}({}): {}", stage.form->name, function, version.text));
  }
  plan.sets.insert(plan.sets.end(), versions.begin(), versions.end());
  return plan.digest();
}

Pipeline::Opened Pipeline::open(uint64_t seed) const { return open_in_job(nullptr, seed); }

Pipeline::Opened Pipeline::open(World& world, uint64_t seed) const {
  return open_in_job(&world, seed);
}

Pipeline::Opened Pipeline::open_in_job(World* world, uint64_t seed) const {
  const auto kind = data::find_kind(values_.at("name"));
  Config config = config_of(settings(), *kind, seed);
  if (const std::string line = place_cache_in_job(config, world); !line.empty())
    log_info("{}", line);
  const data::Dataset data = kind->read(config.data);
  use_data_service(config);
  data::Sources sources = data::make_sources(kind->name, data);
  TrainerOptions batches = config.trainer;
  batches.shuffle = order_of(config, data);
  batches.input_bytes = config.data.memory_bytes;
  LoaderOptions options = loader_options_of(batches, batches.batch);
  options.dtype = to_torch(data.input.type);
  return {std::move(sources.train), std::move(sources.test), options, data.input};
}

}  // namespace trireme
