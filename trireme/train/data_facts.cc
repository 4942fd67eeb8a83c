#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/data/data_kinds.h>
#include <trireme/data/pipeline/stage.h>
#include <trireme/plan/bucketing.h>
#include <trireme/plan/mixture.h>
#include <trireme/plan/sample_order.h>
#include <trireme/train/data_facts.h>
#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {
namespace {

constexpr std::string_view kPrefix = "data.";
constexpr const char* kContent = "data.content";
constexpr const char* kOrder = "data.order";
constexpr const char* kShuffle = "data.shuffle";
constexpr const char* kWindow = "data.window";
constexpr const char* kTestContent = "data.test_content";
constexpr const char* kUnused = "not in use";
// A run may continue with other values of these keys: they only cut the same order of samples in
// another way. The effect of data.classes is visible in the model's shapes.
constexpr std::string_view kMayChange[] = {
    "data.batch",  "data.drop_last",   "data.classes",       "data.threads",    "data.prefetch",
    "data.stages", "data.test_stages", "data.on_bad_record", "data.bad_records"};

std::set<std::string> keys_of_data(const Json& config) {
  std::set<std::string> keys;
  if (!config.is_object()) return keys;
  for (const auto& [key, value] : config.items())
    if (key.starts_with(kPrefix) && key != kContent && key != kTestContent &&
        std::find(std::begin(kMayChange), std::end(kMayChange), key) == std::end(kMayChange))
      keys.insert(key);
  return keys;
}

std::string text_of(const Json& config, const std::string& key) {
  if (!config.contains(key)) return kUnused;
  return config[key].is_string() ? config[key].get<std::string>() : config[key].dump();
}

// The content of a data set that a programme has registered need not be a digest.
std::string subject_of_content(const std::string& name) {
  const auto kind = data::find_kind_or_null(name);
  if (name != kUnused && !(kind && kind->ships()))
    return fmt::format("the data set {} has other samples: its content", name);
  return fmt::format("{} other samples: the digest of the content",
                     kind ? kind->holder : data::DataKind().holder);
}

// Empty for a checkpoint of an earlier version.
std::vector<std::string> sets_of_input(const Json& config) {
  std::vector<std::string> sets;
  const Json plan = config.is_object() ? config.value(kInputPlan, Json()) : Json();
  if (!plan.is_object() || !plan.contains("sets")) return sets;
  for (const Json& set : plan["sets"])
    sets.push_back(set.is_string() ? set.get<std::string>() : set.dump());
  return sets;
}

// Checkpoints of earlier versions have stages as they were given.
std::string stages_in(const Json& config, const char* key) {
  const std::string text = text_of(config, key);
  try {
    return data::text_to_agree(key, text);
  } catch (const Error&) {
    return text;
  }
}

}  // namespace

void require_same_data(const Json& was, const Json& now) {
  const std::set<std::string> before = keys_of_data(was), after = keys_of_data(now);
  const bool knew = was.is_object() && was.contains(kContent),
             knows = now.is_object() && now.contains(kContent);
  std::set<std::string> compared;
  if (knew && knows)
    std::set_union(before.begin(), before.end(), after.begin(), after.end(),
                   std::inserter(compared, compared.end()));
  else
    std::set_intersection(before.begin(), before.end(), after.begin(), after.end(),
                          std::inserter(compared, compared.end()));
  // Earlier versions have no such key, because they had one kind of order.
  for (const Json* const config : {&was, &now})
    if (config->is_object() && config->contains(kOrder)) compared.insert(kOrder);
  std::vector<std::string> differences;
  for (const std::string& key : compared)
    if (const std::string old = text_of(was, key), value = text_of(now, key); old != value)
      differences.push_back(fmt::format("{} is {} now and was {}", key, value, old));
  if (differences.empty() && knew && knows && was[kContent] != now[kContent])
    differences.push_back(fmt::format("{} is {} now and was {}",
                                      subject_of_content(text_of(now, "data.name")),
                                      text_of(now, kContent), text_of(was, kContent)));
  if (!differences.empty())
    throw Error(ErrorCode::invalid_argument, "train",
                fmt::format("the checkpoint was trained on other data, or in another order: {}",
                            fmt::join(differences, "; ")),
                "the data as it was, or --fresh to start anew");
  // A checkpoint of an earlier version, or of a run without a test part, has no such digest.
  if (was.is_object() && was.contains(kTestContent) &&
      text_of(was, kTestContent) != text_of(now, kTestContent))
    throw Error(ErrorCode::invalid_argument, "train",
                fmt::format("the checkpoint was evaluated on other samples: {} is {} now and was "
                            "{}",
                            kTestContent, text_of(now, kTestContent), text_of(was, kTestContent)),
                "the test part as it was, or --fresh to start anew");
  if (knows && !knew)
    log_warning(
        "the checkpoint comes from an earlier version and has no digest of its data: this run "
        "cannot check that the data is the same");
}

std::vector<std::string> changes_of_input(const Json& was, const Json& now) {
  const std::vector<std::string> old_sets = sets_of_input(was), sets = sets_of_input(now);
  std::vector<std::string> changes;
  if (!was.is_object() || (!old_sets.empty() && old_sets == sets)) return changes;
  const auto add = [&](const std::string& subject, const std::string& value,
                       const std::string& old) {
    changes.push_back(
        fmt::format("{} is \"{}\" now and was \"{}\" in the checkpoint", subject, value, old));
  };
  for (const char* const key : {"data.stages", "data.test_stages"})
    if (was.contains(key) && stages_in(was, key) != stages_in(now, key))
      add(key, text_of(now, key), text_of(was, key));
  if (!changes.empty()) return changes;
  for (size_t i = 0; i < std::min(old_sets.size(), sets.size()); ++i)
    if (old_sets[i] != sets[i]) add("the input", sets[i], old_sets[i]);
  return changes;
}

void put_order(Json& config, const plan::OrderOptions& order, int64_t samples) {
  using plan::OrderKind;
  const bool is_flag = order.kind == OrderKind::full || order.kind == OrderKind::none;
  config[kShuffle] =
      is_flag ? (order.shuffles() ? "true" : "false") : std::string(plan::to_string(order.kind));
  config.erase(kWindow);
  config.erase(kOrder);
  if (order.kind == OrderKind::blocks) config[kWindow] = fmt::format("{}", order.window);
  std::vector<std::string> parts;
  if (order.kind == OrderKind::full && !order.mixture && samples > plan::kLargestOrderTable)
    parts.push_back("keyed");
  if (order.kind == OrderKind::blocks && order.blocks && !order.mixture)
    parts.push_back(fmt::format("{} blocks ({})", order.blocks->count(), order.blocks->digest()));
  if (order.mixture) {
    const std::string text = order.mixture->to_json().dump();
    parts.push_back(fmt::format("mixture of {} sources ({})",
                                order.mixture->options().sources.size(),
                                sha256_hex(text).substr(0, 16)));
  }
  if (order.by_length)
    parts.push_back(fmt::format("batches of {} by length in windows of {} ({})",
                                order.by_length->batch, order.by_length->window,
                                order.by_length->content));
  if (!parts.empty()) config[kOrder] = fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace trireme
