#include <trireme/data/kinds/mixture_stages.h>

#include <fmt/format.h>

#include <trireme/data/data_kinds.h>
#include <string>
#include <utility>

namespace trireme::data {
namespace {

bool is_for_batches(const Stage& stage) {
  return stage.form->kind == StageKind::mix || stage.form->kind == StageKind::pad ||
         stage.form->name == "bucket";
}

// The stages that are for batches, or the others.
Stages choose(const Stages& stages, bool for_batches) {
  Stages chosen;
  for (const Stage& stage : stages)
    if (is_for_batches(stage) == for_batches) chosen.push_back(stage);
  return chosen;
}

Stages checked_batch_stages(std::string_view key, const std::string& text) {
  const Stages stages = parse_stages(key, text);
  // From the first stage that works on the tensors of a batch on, no sample is alone.
  auto first = stages.begin();
  while (first != stages.end() && first->form->kind != StageKind::mix &&
         first->form->kind != StageKind::pad)
    ++first;
  check_forms(key, Stages(first, stages.end()), SampleForm::tensors);
  return choose(stages, true);
}

void refuse_own_batch_stages(const SourceOptions& source) {
  for (const std::string& text : {source.options.stages, source.options.test_stages})
    for (const Stage& stage : parse_stages("data.stages", text))
      if (is_for_batches(stage))
        throw Error(
            ErrorCode::invalid_argument, "data",
            fmt::format("the stage {} works on batches, which have samples of all sources",
                        stage.form->name),
            fmt::format("{} in data.stages, where it holds for the mixture", stage.form->name));
}

// Its entry says more than data.cache of the mixture does.
void keep_own_cache(const DataOptions& of_mixture, DataOptions& source) {
  if (of_mixture.cache != "auto") return;
  for (const std::string& text : {source.stages, source.test_stages})
    if (find_stage(parse_stages("data.stages", text), "cache")) source.cache = "stages";
}

// bucket and pad, by which a source's plan of its samples knows their lengths.
std::string with_lengths(const std::string& text, const Stages& of_mixture) {
  Stages stages = parse_stages("data.stages", text);
  if (const Stage* const bucket = find_stage(of_mixture, "bucket"))
    stages.insert(stages.begin(), *bucket);
  if (const Stage* const pad = find_stage(of_mixture, "pad")) stages.push_back(*pad);
  return describe(stages);
}

void give_lengths(const StagesOfParts& of_mixture, SourceOptions& source) {
  DataOptions& options = source.options;
  for (const Stages& stages : {of_mixture.train, of_mixture.test})
    for (const Stage& stage : stages)
      if (stage.form->kind != StageKind::mix && !find_kind(options.name)->uses("data.stages"))
        throw Error(ErrorCode::invalid_argument, "data",
                    fmt::format("the stage {} needs records with lengths, and {} has none",
                                stage.form->name, options.name),
                    "sources with files of records");
  options.stages = with_lengths(options.stages, of_mixture.train);
  // Without stages of its own, the test part has those of the training part that are not random.
  if (!options.test_stages.empty())
    options.test_stages = with_lengths(options.test_stages, of_mixture.test);
}

}  // namespace

StagesOfParts batch_stages_of(const DataOptions& options) {
  StagesOfParts stages{checked_batch_stages("data.stages", options.stages), {}};
  stages.test = options.test_stages.empty()
                    ? without_random(stages.train)
                    : checked_batch_stages("data.test_stages", options.test_stages);
  refuse_mixed_tests(stages.test);
  return stages;
}

Stages without_batch_stages(const Stages& stages) { return choose(stages, false); }

std::vector<SourceOptions> sources_of_mixture(const DataOptions& options) {
  DataOptions shared = options;
  for (std::string* const text : {&shared.stages, &shared.test_stages})
    *text = describe(without_batch_stages(parse_stages("data.stages", *text)));
  return sources_of(shared);
}

std::vector<SourceOptions> sources_with_stages(const DataOptions& options) {
  const StagesOfParts of_mixture = batch_stages_of(options);
  std::vector<SourceOptions> sources = sources_of_mixture(options);
  for (SourceOptions& source : sources)
    with_source(source.name, [&] {
      refuse_own_batch_stages(source);
      keep_own_cache(options, source.options);
      give_lengths(of_mixture, source);
      return 0;
    });
  return sources;
}

}  // namespace trireme::data
