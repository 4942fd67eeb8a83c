#include <trireme/plan/engine_plan.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/units.h>
#include <algorithm>

namespace trireme::plan {
namespace {

constexpr size_t kDigits = 16;

[[noreturn]] void refuse_plan(const std::string& what) {
  throw Error(ErrorCode::internal, "plan", "engine plan: " + what);
}

Json json_of(const std::vector<TensorSpec>& parameters) {
  Json json = Json::array();
  for (const TensorSpec& spec : parameters) {
    Json one = {{"name", spec.name}, {"shape", spec.shape}, {"dtype", to_string(spec.dtype)}};
    if (!spec.trainable) one["trainable"] = false;
    json.push_back(std::move(one));
  }
  return json;
}

Json json_of(const std::vector<Message>& messages) {
  Json json = Json::array();
  for (const Message& message : messages)
    json.push_back({{"bucket", message.bucket},
                    {"dtype", to_string(message.dtype)},
                    {"elements", message.elements},
                    {"facts", message.facts}});
  return json;
}

std::string steps_of(const Steps& steps) {
  std::string text;
  if (steps.every > 1) text = fmt::format("every {} steps", steps.every);
  if (steps.first > 1)
    text += fmt::format("{}from step {}", text.empty() ? "" : ", ", steps.first);
  if (steps.last == steps.first)
    text = fmt::format("step {}", steps.first);
  else if (steps.last >= 0)
    text += fmt::format("{}to step {}", text.empty() ? "" : ", ", steps.last);
  return text;
}

void check_messages(const EnginePlan& plan) {
  std::vector<int> times(plan.buckets.buckets.size(), 0);
  int64_t facts = 0;
  for (const Message& message : plan.messages) {
    facts += message.facts;
    if (message.bucket < 0) continue;
    if (static_cast<size_t>(message.bucket) >= times.size())
      refuse_plan(fmt::format("a message has bucket {} of {}", message.bucket, times.size()));
    const Bucket& bucket = plan.buckets.buckets[static_cast<size_t>(message.bucket)];
    if (bucket.elements + message.facts != message.elements || bucket.dtype != message.dtype)
      refuse_plan(fmt::format("the message of bucket {} has {} elements of {}, and needs {} of {}",
                              message.bucket, message.elements, to_string(message.dtype),
                              bucket.elements + message.facts, to_string(bucket.dtype)));
    ++times[static_cast<size_t>(message.bucket)];
  }
  for (size_t bucket = 0; bucket < times.size(); ++bucket)
    if (times[bucket] != 1)
      refuse_plan(fmt::format("bucket {} travels {} times in a step", bucket, times[bucket]));
  if (facts != plan.facts)
    refuse_plan(fmt::format("{} of the {} facts of a step travel", facts, plan.facts));
}

void check_ranges(const EnginePlan& plan) {
  if (plan.exchange != ExchangeKind::reproducible) return;
  const auto& buckets = plan.buckets.buckets;
  if (plan.ranges.size() != buckets.size())
    refuse_plan(fmt::format("ranges of {} of {} buckets", plan.ranges.size(), buckets.size()));
  for (size_t b = 0; b < buckets.size(); ++b)
    if (plan.ranges[b] * plan.ranks() < buckets[b].elements)
      refuse_plan(fmt::format("{} ranges of {} elements do not cover bucket {}, which has {}",
                              plan.ranks(), plan.ranges[b], b, buckets[b].elements));
}

void check_stages(const EnginePlan& plan) {
  std::vector<bool> is_there(plan.parameters.size(), plan.stages.empty());
  for (const StageParameters& stage : plan.stages) {
    std::vector<TensorSpec> updated;
    for (const int param : stage.params) {
      updated.push_back(plan.parameters.at(static_cast<size_t>(param)));
      is_there[static_cast<size_t>(param)] = true;
    }
    if (stage.rows)
      check(*stage.rows, stage.kept);
    else
      check(stage.buckets, updated);
  }
  for (size_t param = 0; param < is_there.size(); ++param)
    if (!is_there[param])
      refuse_plan(fmt::format("'{}' is on no stage", plan.parameters[param].name));
}

Json json_of(const std::vector<StageParameters>& stages) {
  Json json = Json::array();
  for (const StageParameters& stage : stages)
    json.push_back({{"params", stage.params},
                    {"buckets", stage.buckets.to_json()},
                    {"rows", stage.rows ? stage.rows->to_json() : Json(nullptr)}});
  return json;
}

std::string describe_parts(const EnginePlan& plan) {
  std::string text = plan.cut->describe() + "\n" + plan.pipeline->describe();
  if (plan.stages.empty()) return text;
  // Stages share nothing, so the first line of shards is not true of them.
  const std::string shards = plan.shards.describe(plan.parameters);
  const std::string_view by_rank = std::string_view(shards).substr(shards.find('\n') + 1);
  return fmt::format("{}\n{}{}", text,
                     by_rank.empty() ? "every rank updates all parameters of its stage\n"
                                     : "the elements that each rank updates\n",
                     by_rank);
}

std::string unknown_operations(const EnginePlan& plan) {
  if (plan.engine == kMeshEngine)
    return plan.stages.empty() ? "those of divided layers"
                               : "the activations between stages, and their gradients";
  if (plan.servers) return "pushes to the servers, pulls, and the facts of a step";
  const bool of_state = plan.exchange == ExchangeKind::local_steps && plan.compression == "none";
  return "those of " + (plan.exchange == ExchangeKind::own ? "the engine '" + plan.engine + "'"
                        : of_state                         ? "the optimizer's state"
                                   : "the compressor '" + plan.compression + "'");
}

}  // namespace

std::string_view to_string(ExchangeKind kind) {
  switch (kind) {
    case ExchangeKind::all_reduce: return "all_reduce";
    case ExchangeKind::shared: return "shared";
    case ExchangeKind::host_means: return "host_means";
    case ExchangeKind::reproducible: return "reproducible";
    case ExchangeKind::local_steps: return "local_steps";
    case ExchangeKind::servers: return "servers";
    case ExchangeKind::own: return "own";
  }
  throw Error(ErrorCode::internal, "plan",
              fmt::format("no exchange has the number {}", static_cast<int>(kind)));
}

int64_t EnginePlan::operations_of(int rank, int64_t steps) const {
  int64_t sum = 0;
  for (const Operation& operation : operations)
    sum += operation.operations[static_cast<size_t>(rank)] * operation.steps.times(steps);
  return sum;
}

int64_t EnginePlan::bytes_sent_by(int rank, int64_t steps) const {
  int64_t sum = 0;
  for (const Operation& operation : operations)
    sum += operation.bytes_sent[static_cast<size_t>(rank)] * operation.steps.times(steps);
  return sum;
}

int EnginePlan::replicas() const {
  if (engine != kMeshEngine) return ranks();
  return static_cast<int>(mesh.peers_along(kDataAxis, 0).size());
}

std::vector<std::pair<std::string, Json>> EnginePlan::parts() const {
  Json sent = Json::array();
  for (const Operation& operation : operations) sent.push_back(operation.to_json());
  std::vector<std::pair<std::string, Json>> all = {
      {"engine", engine},
      {"exchange", to_string(exchange)},
      {"mesh", mesh.to_json()},
      {"placement", placement.to_json()},
      {"data", data ? DataPlan(*data).to_json(replicas()) : Json(nullptr)},
      {"parameters", json_of(parameters)},
      {"shards", shards.to_json()},
      {"layout", layout ? plan::to_json(*layout) : Json(nullptr)},
      {"buckets", buckets.to_json()},
      {"follows_ready_order", follows_ready_order},
      {"messages", json_of(messages)},
      {"facts", facts},
      {"pipeline", pipeline ? pipeline->to_json() : Json(nullptr)},
      {"cut", cut ? cut->to_json() : Json(nullptr)},
      {"shard_level", shard_level},
      {"stages", json_of(stages)},
      {"shard_tree", shard_tree ? shard_tree->to_json() : Json(nullptr)},
      {"ranges", ranges},
      {"compression", compression},
      {"operations", std::move(sent)},
      {"knows_all_operations", knows_all_operations}};
  if (servers) all.emplace_back("servers", servers->to_json());
  return all;
}

Json EnginePlan::to_json() const {
  Json json = {{"digest", digest()}};
  for (auto& [name, part] : parts()) json[name] = std::move(part);
  return json;
}

std::string EnginePlan::digest() const {
  Sha256 hash;
  for (const auto& [name, part] : parts()) hash.update(name + "=" + part.dump() + "\n");
  return hash.hex().substr(0, kDigits);
}

std::string EnginePlan::describe() const {
  std::string text = fmt::format("plan {}: {} by {}; {}\n\n", digest(), engine,
                                 to_string(exchange), placement.describe());
  if (engine == kMeshEngine)
    text += describe_parts(*this);
  else if (servers)
    text += servers->describe();
  else
    text += shards.describe(parameters) + "\n" + buckets.describe();
  if (follows_ready_order)
    text +=
        "(after the first step the buckets follow the order in which gradients became ready)\n";
  text += "\n";
  if (shard_tree) text += shard_tree->describe() + "\n";
  if (operations.empty() && knows_all_operations)
    return text + "operations of a step: none" +
           (ranks() == 1 ? "\n" : "; ranks read each other's gradients in place\n");
  text += "operations of rank 0 in a step, and the bytes that it sends\n";
  int64_t of_others = 0;
  for (const Operation& operation : operations) {
    if (operation.operations[0] == 0) {
      ++of_others;
      continue;
    }
    const std::string how = operation.algorithm.empty() ? "" : " by " + operation.algorithm;
    const std::string when = steps_of(operation.steps);
    const std::string times =
        operation.operations[0] > 1 ? fmt::format("{} x ", operation.operations[0]) : "";
    text +=
        fmt::format("  {:<38}  {:<34}  {:>10}{}\n", operation.content,
                    fmt::format("{}{} over {}{}", times, operation.name, operation.path, how),
                    format_bytes(operation.bytes_sent[0]), when.empty() ? "" : "  (" + when + ")");
  }
  if (of_others > 0)
    text += fmt::format("  and {} {}, without rank 0\n", of_others,
                        engine == kMeshEngine ? "of other stages and replicas" : "on other hosts");
  if (!knows_all_operations)
    text += fmt::format("  and others, which are not known: {}\n", unknown_operations(*this));
  return text;
}

EnginePlan plan_replicas(std::string engine, Placement placement,
                         std::vector<TensorSpec> parameters) {
  EnginePlan plan;
  plan.engine = std::move(engine);
  plan.exchange = ExchangeKind::own;
  plan.mesh = Mesh({{"data", placement.ranks()}});
  plan.placement = std::move(placement);
  plan.shards = replicate(parameters, plan.ranks());
  plan.parameters = std::move(parameters);
  plan.knows_all_operations = false;
  return plan;
}

void check(const EnginePlan& plan) {
  check(plan.mesh);
  check(plan.placement);
  if (plan.mesh.world_size() != plan.ranks())
    refuse_plan(fmt::format("the mesh has {} ranks, and the placement {}", plan.mesh.world_size(),
                            plan.ranks()));
  if (plan.shards.ranks.size() != static_cast<size_t>(plan.ranks()))
    refuse_plan(fmt::format("shards for {} of {} ranks", plan.shards.ranks.size(), plan.ranks()));
  check(plan.shards, plan.parameters);
  if (plan.layout) check(*plan.layout, plan.parameters);
  if (plan.servers) check(*plan.servers);
  if (plan.exchange != ExchangeKind::own && !plan.servers) check(plan.buckets, plan.parameters);
  check_ranges(plan);
  if (plan.engine == kMeshEngine) check_stages(plan);
  if (plan.data) check(DataPlan(*plan.data), plan.ranks());
  if (plan.shard_tree) check(*plan.shard_tree);
  const bool sends_messages =
      plan.exchange == ExchangeKind::all_reduce || plan.exchange == ExchangeKind::local_steps;
  if (plan.ranks() > 1 && sends_messages) check_messages(plan);
  if (plan.shard_tree.has_value() != (plan.exchange == ExchangeKind::reproducible) ||
      plan.layout.has_value() !=
          (plan.exchange == ExchangeKind::shared || plan.exchange == ExchangeKind::host_means) ||
      plan.servers.has_value() != (plan.exchange == ExchangeKind::servers))
    refuse_plan(fmt::format("its parts are not those of exchange {}", to_string(plan.exchange)));
}

}  // namespace trireme::plan
