#include <trireme/data/service/server_work.h>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace trireme::data {
namespace {

constexpr size_t kMostStages = 1024, kLongestStage = 4096;

int64_t count_in(const Json& json) {
  const auto count = json.get<int64_t>();
  if (!json.is_number_integer() || count < 0) throw std::invalid_argument("has a wrong count");
  return count;
}

StageUse stage_in(const Json& json) {
  StageUse stage{.name = json.at(0).get<std::string>(),
                 .seconds = json.at(1).get<double>(),
                 .samples = count_in(json.at(2)),
                 .bytes = count_in(json.at(3)),
                 .in_service = true};
  if (stage.name.size() > kLongestStage || !std::isfinite(stage.seconds) || stage.seconds < 0)
    throw std::invalid_argument("has a wrong stage");
  return stage;
}

void add_stages(const std::vector<StageUse>& more, std::vector<StageUse>& all) {
  auto from = more.begin();
  // A stage may be there several times, and the two sides may have other caches.
  for (StageUse& stage : all) {
    const auto same = std::find_if(from, more.end(),
                                   [&](const StageUse& each) { return each.name == stage.name; });
    if (same == more.end()) continue;
    stage.add(*same);
    from = std::next(same);
  }
}

}  // namespace

Json to_json(const ServerWork& work) {
  Json stages = Json::array();
  for (const StageUse& stage : work.stages)
    stages.push_back({stage.name, stage.seconds, stage.samples, stage.bytes});
  return {{"start", work.start},
          {"threads", work.threads},
          {"served", work.served},
          {"stages", std::move(stages)}};
}

ServerWork server_work_of(const Json& json) {
  ServerWork work{
      .start = json.at("start").get<uint64_t>(),
      .threads = static_cast<int>(std::min<int64_t>(count_in(json.at("threads")), 1 << 20)),
      .served = count_in(json.at("served")),
      .stages = {}};
  const auto& stages = json.at("stages").get_ref<const Json::array_t&>();
  if (stages.size() > kMostStages) throw std::invalid_argument("has too many stages");
  for (const Json& stage : stages) work.stages.push_back(stage_in(stage));
  return work;
}

Json to_json(const StageUse& stage) {
  const double per_sample =
      stage.samples > 0 ? stage.seconds * 1e3 / static_cast<double>(stage.samples) : 0;
  Json json{{"name", stage.name},
            {"samples", stage.samples},
            {"seconds", stage.seconds},
            {"ms_per_sample", per_sample},
            {"bytes", stage.bytes}};
  if (stage.in_service) json["in"] = "service";
  return json;
}

Json to_json(const std::vector<StageUse>& stages) {
  Json all = Json::array();
  for (const StageUse& stage : stages) all.push_back(to_json(stage));
  return all;
}

void WorkForWorker::note(const std::string& server, const ServerWork& work, int64_t samples) {
  const std::lock_guard lock(mutex_);
  const auto found = servers_.find(server);
  if (found == servers_.end() || found->second.newest.start != work.start) {
    if (found != servers_.end()) {
      const std::vector<StageUse> part = part_of(found->second);
      if (ended_.empty())
        ended_ = part;
      else
        add_stages(part, ended_);
    }
    servers_[server] = {work, work, 0};
    return;
  }
  Seen& seen = found->second;
  seen.received += samples;
  // Replies may overtake each other.
  if (work.served > seen.newest.served) seen.newest = work;
}

std::vector<StageUse> WorkForWorker::part_of(const Seen& seen) {
  const int64_t served = seen.newest.served - seen.first.served;
  const double part =
      served > 0 ? std::min(1.0, static_cast<double>(seen.received) / static_cast<double>(served))
                 : 0;
  const auto of = [&](int64_t now, int64_t before) {
    return std::llround(static_cast<double>(std::max<int64_t>(0, now - before)) * part);
  };
  std::vector<StageUse> stages = seen.newest.stages;
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageUse before = i < seen.first.stages.size() ? seen.first.stages[i] : StageUse{};
    stages[i].seconds = std::max(0.0, stages[i].seconds - before.seconds) * part;
    stages[i].samples = of(stages[i].samples, before.samples);
    stages[i].bytes = of(stages[i].bytes, before.bytes);
  }
  return stages;
}

std::vector<StageUse> WorkForWorker::stages(const std::vector<StageUse>& like) const {
  std::vector<StageUse> all;
  for (const StageUse& stage : like) all.push_back({.name = stage.name, .in_service = true});
  const std::lock_guard lock(mutex_);
  add_stages(ended_, all);
  for (const auto& [server, seen] : servers_) add_stages(part_of(seen), all);
  return all;
}

int WorkForWorker::threads() const {
  const std::lock_guard lock(mutex_);
  int threads = 0;
  for (const auto& [server, seen] : servers_) threads += seen.newest.threads;
  return threads;
}

}  // namespace trireme::data
