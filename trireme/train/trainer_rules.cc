// The rules between the options of a Trainer, and what `auto` means.
#include <fmt/format.h>

#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/config/value.h>
#include <trireme/plan/mesh_plan.h>
#include <trireme/plan/strategy.h>
#include <trireme/train/refuse.h>
#include <trireme/train/trainer_options.h>
#include <algorithm>

namespace trireme {
namespace {

constexpr int kMostMirroredByDefault = 8;

bool has_16_bits(plan::DType dtype) { return plan::bytes_of(dtype) == 2; }

void check_precision_of(const TrainerOptions& o) {
  if (!o.autocast) return;
  if (!has_16_bits(*o.autocast))
    refuse_option(fmt::format("train.precision is {}", precision_text(o)),
                  "float32, bf16 or fp16");
  if (o.dtype != plan::DType::float32)
    refuse_option(
        fmt::format(
            "train.precision is {} and train.dtype is {}: autocast needs parameters of float32",
            precision_text(o), plan::to_string(o.dtype)),
        "train.dtype=float32, or leave train.precision out");
}

void check_local_steps(const TrainerOptions& o) {
  if (o.local.steps == 1) {
    for (const auto& [key, is_on] : {std::pair("strategy.local_after", o.local.after != 0),
                                     std::pair("strategy.local_momentum", o.local.momentum)})
      if (is_on)
        refuse_option(fmt::format("{} is given, but strategy.local_steps is 1", key),
                      "strategy.local_steps=8");
    return;
  }
  if (o.compression.name != "none")
    refuse_option(fmt::format("strategy.local_steps is {} and strategy.compression is {}: local "
                              "steps send no gradients that could be compressed",
                              o.local.steps, o.compression.name),
                  "one of them");
  for (const auto& [key, is_on] :
       {std::pair("guard.spike", o.guard.spike != 0),
        std::pair("guard.check_replicas_every", o.guard.check_replicas_every != 0)})
    if (is_on)
      refuse_option(
          fmt::format("{} is given, but strategy.local_steps is {}: replicas differ then", key,
                      o.local.steps),
          "strategy.local_steps=1");
}

// Refuses options that make results depend on the number of replicas, whatever the order of sums.
void check_virtual_shards(const TrainerOptions& o) {
  if (o.virtual_shards == 0) return;
  const auto refuse_with = [&](const char* key, const std::string& value,
                               const std::string& remedy) {
    refuse_option(fmt::format("reproducible.virtual_shards is {} and {} is {}: the result would "
                              "depend on the number of replicas",
                              o.virtual_shards, key, value),
                  fmt::format("{}={}, or reproducible.virtual_shards=0", key, remedy));
  };
  if (o.compression.name != "none")
    refuse_with("strategy.compression", o.compression.name, "none");
  if (o.local.steps > 1) refuse_with("strategy.local_steps", std::to_string(o.local.steps), "1");
  if (o.sync_batch_norm) refuse_with("strategy.sync_batch_norm", "true", "false");
  if (o.resize.batch != "keep")
    refuse_option(
        fmt::format("elastic.batch is {} and reproducible.virtual_shards is {}: the result would "
                    "depend on the number of workers",
                    o.resize.batch, o.virtual_shards),
        "elastic.batch=keep");
}

void check_schedule_of(const TrainerOptions& o) {
  ScheduleOptions schedule = o.schedule;
  // The Trainer sets it once the epoch's length is known.
  if (schedule.every_steps == 0 && o.schedule_every_epochs > 0) schedule.every_steps = 1;
  check(schedule);
}

// Refuses a schedule that does not fit the stages.
void check_division(const TrainerOptions& o) {
  plan::pipeline_of(o.division);  // Throws.
  if (o.division.mesh.divides_model() && o.resize.batch != "keep")
    refuse_option(fmt::format("elastic.batch is {} and mesh.pipeline or mesh.tensor is above 1",
                              o.resize.batch),
                  "elastic.batch=keep");
}

// global = micro x accumulate x replicas.
plan::BatchSizes batch_sizes_of(const TrainerOptions& o, int replicas) {
  plan::BatchSizes sizes{o.batch, o.micro_batch, o.accumulate, replicas};
  if (o.micro_batch == 0) {
    // A share may be smaller than the number of its parts.
    sizes.accumulate = std::max(sizes.accumulate, int64_t{1});
    const int64_t parts = sizes.accumulate * replicas;
    sizes.micro = (o.batch + parts - 1) / parts;
    return sizes;
  }
  try {
    return plan::batch_sizes(sizes);
  } catch (const Error& error) {
    const ErrorParts parts = parts_of(error);
    throw Error(error.code(), "config",
                fmt::format("train.micro_batch is {}: {}", o.micro_batch, parts.what),
                "data.batch=auto, train.accumulate=auto, or " + parts.remedy);
  }
}

// The strategy that the mesh and the shards ask for, if `auto` is to be replaced.
std::string strategy_of_division(const plan::DivisionOptions& division) {
  if (division.mesh.pipeline > 1) return "pipeline";
  if (division.mesh.tensor > 1) return "tensor";
  return division.shard.level > 0 ? "sharded" : "auto";
}

// Refuses options of stages where there are none. A rank with the whole model may still compute
// micro-batches, if its strategy divides something else.
void check_pipeline_options(const plan::PipelineOptions& o, bool has_microbatches) {
  const plan::PipelineOptions usual;
  const auto refuse_if = [](bool is_given, const std::string& key, const std::string& value) {
    if (is_given)
      refuse_option(
          fmt::format("{} is {}, but mesh.pipeline is 1: there are no stages", key, value),
          fmt::format("mesh.pipeline=2, or leave {} out", key));
  };
  refuse_if(o.schedule != usual.schedule, "pipeline.schedule", o.schedule);
  refuse_if(o.microbatches != usual.microbatches && !has_microbatches, "pipeline.microbatches",
            std::to_string(o.microbatches));
  refuse_if(o.chunks != usual.chunks, "pipeline.chunks", std::to_string(o.chunks));
  refuse_if(o.cut != usual.cut, "pipeline.cut", o.cut);
}

// Refuses options that the strategy cannot honour, and one that has nothing to divide.
void check_features(const TrainerOptions& o, const std::string& strategy) {
  const auto found = plan::features_of(strategy);
  if (!found) return;  // The Trainer lists the known names.
  const plan::StrategyFeatures& can = *found;
  const auto refuse_unless = [&](bool has_it, bool wanted, const std::string& what) {
    if (wanted && !has_it)
      refuse_option(fmt::format("strategy '{}' with {}, which it does not have", strategy, what),
                    "the option's default, or another strategy");
  };
  const bool has_half_precision =
      has_16_bits(o.dtype) || o.autocast == plan::DType::float16 || o.loss_scaling.has_value();
  refuse_unless(can.clip_norm, o.clip_norm > 0, fmt::format("train.clip_norm {}", o.clip_norm));
  refuse_unless(can.clip_norm, o.guard.spike > 0, fmt::format("guard.spike {}", o.guard.spike));
  refuse_unless(can.clip_norm, o.guard.policy != "stop", "guard.policy " + o.guard.policy);
  refuse_unless(can.compression, o.compression.name != "none",
                "strategy.compression " + o.compression.name);
  refuse_unless(can.local_steps, o.local.steps > 1,
                fmt::format("strategy.local_steps {}", o.local.steps));
  refuse_unless(can.virtual_shards, o.virtual_shards > 0,
                fmt::format("reproducible.virtual_shards {}", o.virtual_shards));
  refuse_unless(can.loss_scaling, has_half_precision,
                "train.dtype or train.precision of 16 bits, or loss scaling");
  refuse_unless(can.equal_replicas, o.guard.check_replicas_every > 0,
                fmt::format("guard.check_replicas_every {}", o.guard.check_replicas_every));
  refuse_unless(can.memory, !o.memory.is_plain(), "memory.policy " + o.memory.policy);
  refuse_unless(can.offload, o.memory.offload != "none", "memory.offload " + o.memory.offload);
  refuse_unless(can.sync_batch_norm, o.sync_batch_norm, "strategy.sync_batch_norm");
  refuse_unless(can.averages, o.ema_decay > 0, fmt::format("train.ema_decay {}", o.ema_decay));
  const plan::MeshOptions& mesh = o.division.mesh;
  refuse_unless(can.divides, mesh.divides_model(),
                fmt::format("mesh.pipeline {} and mesh.tensor {}", mesh.pipeline, mesh.tensor));
  refuse_unless(can.divides, o.division.shard.level > 0,
                fmt::format("shard.level {}", o.division.shard.level));
  const auto require_axis = [&](const char* name, int size) {
    if (strategy == name && size == 1)
      refuse_option(fmt::format("strategy.name is {0}, but mesh.{0} is 1", name),
                    fmt::format("mesh.{}=2, or strategy.name=auto", name));
  };
  // One stage still computes its micro-batches one after the other.
  if (o.division.pipeline.microbatches == 0) require_axis("pipeline", mesh.pipeline);
  if (mesh.pipeline == 1 && strategy != "pipeline")
    check_pipeline_options(o.division.pipeline, can.divides);
  require_axis("tensor", mesh.tensor);
}

void check_name_of_device(const std::string& name) {
  const auto types = {"cpu", "cuda", "hpu", "mps", "mtia", "privateuseone", "xpu"};
  const size_t colon = name.find(':');
  const std::string index = colon == std::string::npos ? "0" : name.substr(colon + 1);
  const bool is_known = std::ranges::find(types, name.substr(0, colon)) != types.end() &&
                        !index.empty() && index.size() < 4 &&
                        index.find_first_not_of("0123456789") == std::string::npos &&
                        !name.starts_with("cpu:");
  if (!is_known)
    refuse_option(fmt::format("device.name is \"{}\", which is no device of LibTorch", name),
                  "cpu, cuda, cuda:1 or xpu");
}

// Refuses what works on memory of the host.
void check_device(const TrainerOptions& o, const ResolvedStrategy& resolved) {
  if (o.device == "cpu") return;
  const auto refuse_if = [&](bool is_on, const std::string& what, const std::string& remedy) {
    if (is_on)
      refuse_option(fmt::format("device.name is {} and {}", o.device, what),
                    remedy + ", or device.name=cpu");
  };
  const auto can = plan::features_of(resolved.name);
  refuse_if((can && (can->divides || can->servers)) || resolved.name == "central_storage",
            fmt::format("strategy.name is {}, which trains on the CPU only", resolved.name),
            "strategy.name=one_device, mirrored or multi_worker");
  refuse_if(!o.memory.is_plain(),
            fmt::format("memory.policy is {}, which plans memory of the host", o.memory.policy),
            "memory.policy=none");
  refuse_if(o.memory.offload != "none",
            fmt::format("memory.offload is {}, which moves memory of the host", o.memory.offload),
            "memory.offload=none");
  refuse_if(o.autocast.has_value(),
            fmt::format("train.precision is {}, which is autocast on the CPU", precision_text(o)),
            "train.dtype=bfloat16 with float32 masters");
  refuse_if(o.device.find(':') != std::string::npos && resolved.replicas_per_worker > 1,
            fmt::format("a worker has {} replicas, and each takes a device of its own",
                        resolved.replicas_per_worker),
            fmt::format("device.name={}", o.device.substr(0, o.device.find(':'))));
}

// Parameters are there once, or the word would promise too much.
void check_central_storage(const TrainerOptions& o, const std::string& strategy) {
  if (strategy == "central_storage" && !may_share_parameters(o))
    refuse_option(
        fmt::format("strategy.name is central_storage, which keeps all parameters once, and {}",
                    o.share_parameters ? "inject.faults corrupts those of a single replica"
                                       : "strategy.share_parameters is false"),
        "strategy.name=mirrored, which may have copies");
}

// Refuses what needs all replicas to be equal, or one update after the other, if workers compute
// at their own pace.
void check_pace(const TrainerOptions& o) {
  if (plan::is_in_step(o.ps.consistency)) return;
  const std::string pace =
      fmt::format("ps.consistency is {}{}", to_string(o.ps.consistency.consistency),
                  o.ps.consistency.backup_workers > 0 ? " with backup workers" : "");
  const auto refuse_if = [&](bool is_on, const std::string& what, const std::string& remedy) {
    if (is_on)
      refuse_option(fmt::format("{} and {}: workers compute at their own pace", pace, what),
                    remedy + ", or ps.consistency=sync without ps.backup_workers");
  };
  refuse_if(o.sync_batch_norm, "strategy.sync_batch_norm is true",
            "strategy.sync_batch_norm=false");
  refuse_if(o.ema_decay > 0, fmt::format("train.ema_decay is {}", o.ema_decay),
            "train.ema_decay=0");
  refuse_if(o.resize.batch != "keep", fmt::format("elastic.batch is {}", o.resize.batch),
            "elastic.batch=keep");
  refuse_if(o.guard.spike > 0, fmt::format("guard.spike is {}", o.guard.spike), "guard.spike=0");
  refuse_if(o.guard.policy == "rollback", "guard.policy is rollback", "guard.policy=skip");
  refuse_if(o.guard.check_replicas_every > 0,
            fmt::format("guard.check_replicas_every is {}", o.guard.check_replicas_every),
            "guard.check_replicas_every=0");
  refuse_if(o.clip_norm > 0 && o.ps.consistency.backup_workers > 0,
            fmt::format("train.clip_norm is {}", o.clip_norm), "train.clip_norm=0");
}

void check_servers(const TrainerOptions& o, const std::string& strategy, int workers) {
  const auto can = plan::features_of(strategy);
  if (can && !can->servers && o.ps.servers > 0)
    refuse_option(fmt::format("the job has {} parameter servers, and strategy '{}' uses none",
                              o.ps.servers, strategy),
                  "strategy.name=parameter_server, or no --ps");
  if (!can || !can->servers) return;
  if (o.ps.servers < 1)
    refuse_option(
        fmt::format("strategy.name is {}, and the job has no parameter servers", strategy),
        "--ps 1 or more (ps.servers)");
  if (o.ps.replication > o.ps.servers)
    refuse_option(
        fmt::format("ps.replication is {}, and the job has {} parameter server{}",
                    o.ps.replication, o.ps.servers, o.ps.servers == 1 ? "" : "s"),
        fmt::format("ps.replication={} or less, or --ps {}", o.ps.servers, o.ps.replication));
  if (const auto& name = o.compression.name;
      name != "none" && name != "topk" && !plan::block_format_of(name))
    refuse_option(
        fmt::format("strategy.compression is {}, which parameter servers cannot use", name),
        "bf16, fp16, int8, topk or none");
  plan::check(o.ps.consistency, workers);
  check_pace(o);
}

int replicas_per_worker(const TrainerOptions& options, const std::string& strategy, int cores) {
  if (options.replicas > 0) return options.replicas;
  if (!plan::is_in_threads(strategy)) return 1;
  return std::min(cores > 0 ? cores : usable_cores(), kMostMirroredByDefault);
}

}  // namespace

void check(const TrainerOptions& options) {
  config::check_values(options);
  check(options.guard);
  check(options.memory);
  check(options.rate_scaling);
  check(options.resize, options.batch);
  check_schedule_of(options);
  check_precision_of(options);
  check_local_steps(options);
  check_virtual_shards(options);
  check_division(options);
  check_name_of_device(options.device);
  if (options.early_stop.patience > 0 && options.evaluate_every == 0)
    refuse_option(fmt::format("early_stop.patience is {}, but train.evaluate_every is 0: only the "
                              "end is evaluated",
                              options.early_stop.patience),
                  "train.evaluate_every=1, or early_stop.patience=0");
  if (options.batch == 0 && options.micro_batch == 0)
    refuse_option("data.batch is auto, and train.micro_batch too", "a number for one of them");
  plan::resolve_strategy(options.strategy, 1, options.replicas);
}

void require_workers(int workers) {
  if (workers < 1)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--workers {} is below 1", workers), "--workers 1 or more");
}

ResolvedStrategy resolve_strategy(const TrainerOptions& options, int workers, int cores) {
  require_workers(workers);
  ResolvedStrategy resolved;
  const std::string wanted =
      options.strategy == "auto" ? strategy_of_division(options.division) : options.strategy;
  resolved.name = plan::resolve_strategy(wanted, workers, options.replicas);
  check_features(options, resolved.name);
  check_central_storage(options, resolved.name);
  check_servers(options, resolved.name, workers);
  resolved.workers = workers;
  resolved.replicas_per_worker = replicas_per_worker(options, resolved.name, cores);
  resolved.world_size = workers * resolved.replicas_per_worker;
  check_device(options, resolved);
  const std::string replicas = fmt::format("{} replicas ({} workers x {})", resolved.world_size,
                                           workers, resolved.replicas_per_worker);
  const auto refuse_below = [&](const char* key, int64_t value, const char* rule) {
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("{} is {}, but there are {}: {}", key, value, replicas, rule),
                fmt::format("{}={}, or fewer workers or replicas", key, resolved.world_size));
  };
  const int shares = plan::replicas_of(options.division.mesh, resolved.world_size);
  resolved.batch = batch_sizes_of(options, shares);
  if (resolved.batch.global < shares)
    refuse_below("data.batch", options.batch, "the global batch must have a sample for each");
  if (options.virtual_shards > 0 && options.virtual_shards < resolved.world_size)
    refuse_below("reproducible.virtual_shards", options.virtual_shards,
                 "some would have nothing to compute");
  return resolved;
}

int unit_of(const TrainerOptions& options) { return options.division.mesh.ranks_of_a_replica(); }

void check_sizes(const TrainerOptions& options, int least, int most) {
  const plan::MeshOptions& mesh = options.division.mesh;
  if (mesh.data == 0) return;
  const int unit = unit_of(options);
  for (int workers = (least + unit - 1) / unit * unit; workers <= most; workers += unit)
    if (workers != mesh.data * unit)
      refuse_option(fmt::format("mesh.data is {}, but the elastic job may have {} workers, which "
                                "are {} replicas of the model",
                                mesh.data, workers, workers / unit),
                    fmt::format("mesh.data=auto, or --elastic {0}:{0}", mesh.data * unit));
}

bool may_share_parameters(const TrainerOptions& options) {
  return options.share_parameters &&
         std::none_of(options.inject.faults.begin(), options.inject.faults.end(),
                      [](const Fault& fault) { return fault.kind == FaultKind::corrupt; });
}

}  // namespace trireme
