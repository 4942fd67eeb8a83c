#include <trireme/run/input_plan.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/hash.h>
#include <trireme/config/table.h>
#include <trireme/config/value.h>
#include <trireme/data/data_kinds.h>
#include <trireme/data/kinds/mixture_options.h>
#include <trireme/data/kinds/mixture_stages.h>
#include <trireme/data/kinds/record_set.h>
#include <map>
#include <string_view>
#include <utility>

namespace trireme {
namespace {

constexpr size_t kInputDigits = 16;

// The name, and the stages, which are written in their usual form.
bool stands_apart(std::string_view key) {
  return key == "data.name" || key == "data.stages" || key == "data.test_stages";
}

// These decide about no sample: they end a run, or are seen in the model.
bool decides_nothing(std::string_view key) {
  return key == "data.bad_records" || key == "data.classes";
}

// These decide about samples, although ranks do not compare them but the content.
bool decides_alone(std::string_view key) {
  return key == "data.skip_lines" || key == "data.comment";
}

std::string line_of(const data::DataOptions& options) {
  const config::Table& table = config::table_of<data::DataOptions>();
  const auto kind = data::find_kind(options.name);
  std::string line = options.name;
  for (const config::Row& row : table.rows()) {
    const bool decides = row.agreed ? !decides_nothing(row.name) : decides_alone(row.name);
    const bool counts = decides && !stands_apart(row.name) &&
                        (row.only_for.selector.empty() || kind->uses(row.name));
    if (!counts) continue;
    const std::string value = value_as_text(&options, row);
    if (value != value_as_text(table.defaults(), row))
      line += fmt::format("; {}={}", row.name, value);
  }
  if (!kind->uses("data.stages")) return line;
  // Each host may have its cache at another place.
  const auto parts = data::stages_of(options);
  const data::Stages stages = data::without_cache(parts.train);
  const data::Stages of_test = data::without_cache(parts.test);
  if (!stages.empty()) line += "; stages: " + data::describe(stages);
  if (!of_test.empty()) line += "; of evaluations: " + data::describe(of_test);
  return line;
}

std::string describe_order(const plan::OrderOptions& order) {
  const std::string kind(plan::to_string(order.kind));
  if (order.kind != plan::OrderKind::blocks) return kind;
  return fmt::format("{}, in windows of {}", kind, order.window);
}

}  // namespace

std::string InputPlan::digest() const {
  return sha256_hex(fmt::format("{}\n{}\n", order, fmt::join(sets, "\n"))).substr(0, kInputDigits);
}

std::string InputPlan::describe() const {
  return fmt::format("input {}: order {}\n  {}\n", digest(), order, fmt::join(sets, "\n  "));
}

Json InputPlan::to_json() const {
  return {{"digest", digest()}, {"order", order}, {"sets", sets}};
}

InputPlan input_plan_of(const Config& config) {
  const data::DataOptions& options = config.data;
  InputPlan plan{describe_order(config.trainer.shuffle), {line_of(options)}};
  if (options.sources.empty()) return plan;
  const bool is_mixture = data::find_kind(options.name)->uses("data.weights_at");
  // The stages for batches are those of the mixture, which has a line of its own.
  const std::vector<data::SourceOptions> sources =
      is_mixture ? data::sources_of_mixture(options) : data::sources_of(options);
  const std::vector<double> weights =
      is_mixture ? data::weights_of(options, sources).front().weights : std::vector<double>();
  for (size_t i = 0; i < sources.size(); ++i)
    plan.sets.push_back(fmt::format("source {}{}: {}", sources[i].name,
                                    is_mixture ? fmt::format(" of weight {}", weights[i]) : "",
                                    line_of(sources[i].options)));
  return plan;
}

data::Stages stages_with_functions(const Config& config) {
  std::vector<data::DataOptions> sets{config.data};
  if (!config.data.sources.empty())
    for (data::SourceOptions& source : data::sources_of(config.data))
      sets.push_back(std::move(source.options));
  std::map<std::string, data::Stage> found;
  for (const data::DataOptions& options : sets) {
    const auto parts = data::stages_of(options);
    for (const data::Stages* const stages : {&parts.train, &parts.test})
      for (const data::Stage& stage : *stages)
        if (data::calls_function(stage)) found.emplace(stage.describe(), stage);
  }
  data::Stages all;
  for (const auto& [text, stage] : found) all.push_back(stage);
  return all;
}

}  // namespace trireme
