#include <fmt/format.h>

#include <trireme/parallel/options_json.h>
#include <trireme/train/trainer_facts.h>

// Each function takes its structure apart, so that a new field does not compile before somebody
// has decided here whether it must be equal everywhere.
namespace trireme {
namespace {

Json json_of(const RateScaling& scaling) {
  const auto& [rule, base_batch] = scaling;
  return {{"rule", rule}, {"base_batch", base_batch}};
}

Json json_of(const ResizeOptions& resize) {
  const auto& [batch, rate, warmup_steps, workers] = resize;
  return {{"batch", batch}, {"rate", rate}, {"warmup_steps", warmup_steps}, {"workers", workers}};
}

Json json_of(const ScheduleOptions& schedule) {
  const auto& [name, gamma, every_steps, minimum, warmup_steps, total_steps] = schedule;
  return {{"name", name},
          {"gamma", gamma},
          {"every_steps", every_steps},
          {"minimum", minimum},
          {"warmup_steps", warmup_steps},
          {"total_steps", total_steps}};
}

// The folder may have another path on every host. What stays in it, and whether training continues
// while a copy is written, concerns the ranks that write.
Json json_of(const CheckpointOptions& checkpoint) {
  const auto& [dir, every_steps, every_epochs, keep, keep_every, keep_best, background, writers] =
      checkpoint;
  return {{"wanted", !dir.empty()},
          {"every_steps", every_steps},
          {"every_epochs", every_epochs},
          {"keep_best", keep_best},
          {"writers", writers}};
}

Json json_of(const GuardOptions& guard) {
  const auto& [policy, spike, window, check_replicas_every] = guard;
  return {{"policy", policy},
          {"spike", spike},
          {"window", window},
          {"check_replicas_every", check_replicas_every}};
}

Json json_of(const TrainerOptions& options) {
  const auto& [strategy, replicas, epochs, steps, batch, seed, shuffle, drop_last, dtype, autocast,
               loss_scaling, accumulate, clip_norm, ema_decay, sync_batch_norm, compression, local,
               virtual_shards, rate_scaling, resize, schedule, schedule_every_epochs,
               evaluate_every, checkpoint, guard, inject, loader_threads, prefetch, threads,
               share_parameters, buckets, sinks, callbacks, publish, cost, config, started_at] =
      options;
  Json json = {{"strategy", strategy},
               {"replicas", replicas},
               {"epochs", epochs},
               {"steps", steps},
               {"batch", batch},
               {"seed", seed},
               {"shuffle", shuffle},
               {"drop_last", drop_last},
               {"dtype", c10::toString(dtype)},
               {"autocast", autocast ? Json(c10::toString(*autocast)) : Json(nullptr)},
               {"loss_scaling", to_json(loss_scaling)},
               {"accumulate", accumulate},
               {"clip_norm", clip_norm},
               {"ema_decay", ema_decay},
               {"sync_batch_norm", sync_batch_norm},
               {"compression", to_json(compression)},
               {"local", to_json(local)},
               {"virtual_shards", virtual_shards},
               {"rate_scaling", json_of(rate_scaling)},
               {"resize", json_of(resize)},
               {"schedule", json_of(schedule)},
               {"schedule_every_epochs", schedule_every_epochs},
               {"evaluate_every", evaluate_every},
               {"checkpoint", json_of(checkpoint)},
               {"guard", json_of(guard)},
               {"share_parameters", share_parameters},
               {"buckets", to_json(buckets)}};
  // Operators of another number of threads add in another order.
  if (virtual_shards > 0) json["threads"] = threads;
  return json;
}

}  // namespace

std::map<std::string, std::string> facts_of(const TrainerOptions& options, const Job& job,
                                            const Source& train, const Source* test) {
  std::map<std::string, std::string> facts;
  for (const auto& [key, value] : options.config.items())
    facts[key] = value.is_string() ? value.get<std::string>() : value.dump();
  const Json flat = json_of(options).flatten();
  for (const auto& [pointer, value] : flat.items()) {
    std::string key = "trainer" + pointer;
    for (char& c : key)
      if (c == '/') c = '.';
    facts[key] = value.dump();
  }
  facts["job"] = job.name;
  facts["training samples"] = std::to_string(train.size());
  facts["test samples"] = std::to_string(test ? test->size() : 0);
  return facts;
}

}  // namespace trireme
