#include <trireme/data/service/facts.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/built_with.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/version.h>
#include <trireme/data/kinds/mixture_set.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/pipeline/field_choice.h>
#include <algorithm>
#include <any>
#include <mutex>
#include <set>
#include <utility>

namespace trireme::data {
namespace {

constexpr size_t kLongestShown = 200;

struct Libraries {
  std::mutex mutex;
  std::set<std::string> digests;
};
Libraries& known_libraries() {
  static Libraries only;
  return only;
}

std::string digests_of_libraries() {
  auto& [mutex, digests] = known_libraries();
  const std::lock_guard lock(mutex);
  return digests.empty() ? "none" : fmt::format("sha256 {}", fmt::join(digests, ", "));
}

Stages stages_of_samples(const Stages& all) {
  Stages own;
  for (const Stage& stage : all)
    if (stage.form->kind == StageKind::sample || stage.form->kind == StageKind::pad)
      own.push_back(stage);
  return own;
}

// Samples are made one by one, so the length of their batch must be known before.
int64_t longest_of_records(const records::Reader& reader, const SamplePlan& plan,
                           const Stages& stages) {
  if (!plan.has_lengths || find_stage(stages, "map") || find_stage(stages, "random_map"))
    throw Error(ErrorCode::unsupported, "data",
                "data.service makes samples one by one, and the lengths of these padded samples "
                "are not known from the index of their files",
                "data.service: none, or pad without map, for one list of numbers in each record");
  const int64_t first = plan.subset.empty() ? 0 : plan.subset[0];
  return std::max<int64_t>(1, plan.longest > 0 ? plan.longest : reader.length(first).value_or(0));
}

std::string describe_packs(const SamplePlan& plan) {
  if (!plan.packing) return "none";
  const plan::PackingOptions& options = plan.packing->options();
  return fmt::format("{} tokens, window {}, long={}", options.tokens, options.window,
                     options.too_long == plan::TooLong::split ? "split" : "refuse");
}

// A function of the user's may look at the whole draw.
bool depends_on_index_alone(const Stages& stages) {
  return !std::ranges::any_of(stages, calls_function) &&
         std::ranges::none_of(stages, [](const Stage& stage) { return stage.form->is_random; });
}

PartFacts facts_of(std::string name, const RecordParts& parts, const records::Reader& reader,
                   const Stages& all_stages, const SamplePlan& plan) {
  const DataOptions& options = parts.options;
  const FieldChoice fields = choose_fields(reader.fields(), parts.wishes);
  const Stages stages = stages_of_samples(all_stages);
  const int64_t records = plan.subset.empty() ? reader.size() : plan.subset.size();
  PartFacts part{
      .name = std::move(name),
      .samples = plan.packing ? plan.packing->packs() : records,
      .is_fixed = depends_on_index_alone(stages),
      .longest = find_stage(stages, "pad") ? longest_of_records(reader, plan, stages) : 0};
  part.facts = {
      {"the version of Trireme", std::string(version())},
      {"the version of LibTorch", std::string(libtorch_of_build())},
      {"data.name", options.name},
      {"the content of the data", reader.content()},
      {"the number of samples", std::to_string(part.samples)},
      {"the held-out part (data.test_path, test_fraction, split_seed)",
       plan.subset.empty() ? "all records" : plan.subset.describe()},
      {"the stages", describe(without_cache(stages))},
      {"the packs", describe_packs(plan)},
      {"the fields (data.inputs, data.target)",
       fmt::format("{}{}{}; {}", fields.image,
                   fmt::join(fields.decoded.value_or(fields.inputs), ","), fields.tokens,
                   fields.target)},
      {"data.classes", std::to_string(parts.classes)},
      {"data.on_bad_record", options.on_bad_record},
      {"data.delimiter", options.delimiter},
      {"data.header", options.header ? "true" : "false"},
      {"data.skip_lines", std::to_string(options.skip_lines)},
      {"data.comment", options.comment},
      {"data.token_type", options.token_type},
      {"data.block", std::to_string(options.block)},
      {"data.separator", std::to_string(options.separator)},
      {"the names of the classes",
       sha256_hex(fmt::format("{}", fmt::join(reader.class_names(), "\n"))).substr(0, 16)}};
  // A library may have a model alone, in which jobs that share samples differ.
  if (std::ranges::any_of(stages, calls_function))
    part.facts["model.library"] = digests_of_libraries();
  part.digest = sha256_hex(part.facts.dump());
  return part;
}

// The parts of a set whose samples are no records, and have no stages.
std::vector<PartFacts> facts_of_table(const Dataset& data) {
  if (data.content.empty())
    throw Error(ErrorCode::unsupported, "data",
                "data.service compares the content of the data, and that of this source is not "
                "known",
                "data.service: none, or sources with files of docs/input.md");
  const Json facts{{"the content of the data", data.content},
                   {"the content of the test part", data.test_content},
                   {"the held-out part (data.test_path, test_fraction, split_seed)",
                    data.split.test.empty() ? "none" : data.split.test.describe()},
                   {"data.classes", std::to_string(data.input.classes)}};
  return {{.name = "train", .samples = data.train_samples, .facts = facts},
          {.name = "test", .samples = data.test_samples, .facts = facts, .is_fixed = true}};
}

// The samples of a mixture are those of its sources under other numbers.
std::vector<PartFacts> facts_of_mixture(const Dataset& data, const MixtureParts& parts) {
  const auto add_padding = [](const Stages& of_mixture, const records::Reader& reader,
                              const SamplePlan& plan, const Stages& of_source, PartFacts& part) {
    const Stage* const pad = find_stage(of_mixture, "pad");
    if (!pad) return;
    part.facts["the padding"] = pad->describe();
    part.longest = std::max(part.longest, longest_of_records(reader, plan, of_source));
  };
  PartFacts train{.name = "train", .samples = data.mixture->numbers()},
      test{.name = "test", .samples = data.test_samples, .is_fixed = true};
  train.facts = test.facts = {{"the version of Trireme", std::string(version())},
                              {"the version of LibTorch", std::string(libtorch_of_build())}};
  train.facts["the mixture (sizes, weights, weights_at, when_exhausted, epoch_samples)"] =
      sha256_hex(data.mixture->to_json().dump()).substr(0, 16);
  for (size_t i = 0; i < parts.sets.size(); ++i) {
    const auto* const records = std::any_cast<RecordParts>(&parts.sets[i].samples);
    if (records) {
      add_padding(parts.stages.train, *records->train, records->train_plan, records->train_stages,
                  train);
      if (records->test && parts.uses_test(i))
        add_padding(parts.stages.test, *records->test, records->test_plan, records->test_stages,
                    test);
    }
    for (const PartFacts& own :
         records ? facts_of_parts(parts.sets[i]) : facts_of_table(parts.sets[i])) {
      const bool is_test = own.name == "test";
      if (is_test && !parts.uses_test(i)) continue;
      PartFacts& part = is_test ? test : train;
      for (const auto& [name, value] : own.facts.items())
        part.facts[fmt::format("source {}: {}", i + 1, name)] = value;
      if (is_test) part.is_fixed = part.is_fixed && own.is_fixed;
    }
  }
  std::vector<PartFacts> all{std::move(train)};
  if (data.test_samples > 0) all.push_back(std::move(test));
  for (PartFacts& part : all) part.digest = sha256_hex(part.facts.dump());
  return all;
}

std::string shown(const Json& value) {
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.size() > kLongestShown) text = text.substr(0, kLongestShown) + "...";
  return fmt::format("\"{}\"", text);
}

}  // namespace

std::vector<PartFacts> facts_of_parts(const Dataset& data) {
  if (const auto* const mixture = std::any_cast<MixtureParts>(&data.samples))
    return facts_of_mixture(data, *mixture);
  const auto& parts = std::any_cast<const RecordParts&>(data.samples);
  std::vector<PartFacts> all{
      facts_of("train", parts, *parts.train, parts.train_stages, parts.train_plan)};
  if (data.test_samples > 0)
    all.push_back(facts_of("test", parts, *parts.test, parts.test_stages, parts.test_plan));
  return all;
}

void note_library(const std::string& digest) {
  auto& [mutex, digests] = known_libraries();
  const std::lock_guard lock(mutex);
  digests.insert(digest.substr(0, 16));
}

std::string difference(const Json& here, const Json& there) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : here.items()) {
    const Json other = there.is_object() && there.contains(name) ? there[name] : Json();
    if (other != value)
      lines.push_back(fmt::format("{}: {} here, {} at the server", name, shown(value),
                                  other.is_null() ? "nothing" : shown(other)));
  }
  return fmt::format("{}", fmt::join(lines, "; "));
}

}  // namespace trireme::data
