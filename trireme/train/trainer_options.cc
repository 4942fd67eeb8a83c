#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/config/names.h>
#include <trireme/config/row.h>
#include <trireme/plan/strategy.h>
#include <trireme/train/trainer_options.h>
#include <array>
#include <charconv>

namespace trireme {
namespace {

std::string every_text(const CheckpointOptions& options) {
  std::vector<std::string> parts;
  if (options.every_steps > 0) parts.push_back(fmt::format("{} steps", options.every_steps));
  if (options.every_epochs > 0) parts.push_back(fmt::format("{} epochs", options.every_epochs));
  return fmt::format("{}", fmt::join(parts, " and "));
}

// Reads "100", "100 steps", "2 epochs" and "epoch". Returns false for another text, and for a
// second interval of the same unit.
bool read_interval(CheckpointOptions& options, std::string_view text) {
  int64_t count = 1;  // "epoch" alone means every epoch.
  const char* end = text.data() + text.size();
  const char* unit_begin = text.data();
  const auto number = std::from_chars(text.data(), end, count);
  const bool has_number = number.ec == std::errc();
  if (has_number) unit_begin = number.ptr;
  while (unit_begin != end && *unit_begin == ' ') ++unit_begin;
  const std::string_view unit(unit_begin, end);
  const bool is_count = count >= 1 && number.ec != std::errc::result_out_of_range;
  const bool is_of_epochs = unit == "epoch" || unit == "epochs";
  const bool is_of_steps = unit == "step" || unit == "steps" || (unit.empty() && has_number);
  int64_t& interval = is_of_epochs ? options.every_epochs : options.every_steps;
  if (!is_count || !(is_of_epochs || is_of_steps) || interval != 0) return false;
  interval = count;
  return true;
}

// Reads an interval, one of each unit ("5 steps and 1 epochs"), "" and "never".
void set_every(CheckpointOptions& options, const std::string& text) {
  options.every_steps = options.every_epochs = 0;
  if (text.empty() || text == "never") return;
  constexpr std::string_view kAnd = " and ";
  const std::string_view all = text;
  const size_t first_end = all.find(kAnd);
  bool is_known = read_interval(options, all.substr(0, first_end));
  if (first_end != std::string_view::npos)
    is_known = is_known && read_interval(options, all.substr(first_end + kAnd.size()));
  if (is_known) return;
  throw Error(
      ErrorCode::invalid_argument, "train",
      fmt::format("checkpoint.every is \"{}\", but must be a number of steps or epochs, or never",
                  text),
      "checkpoint.every=\"100 steps\" or \"2 epochs\"");
}

std::string faults_text(const InjectOptions& options) {
  return options.faults.empty() ? "none" : to_text(options.faults);
}
void set_faults(InjectOptions& options, const std::string& text) {
  options.faults = parse_faults(text);
}

std::string dtype_text(const TrainerOptions& options) {
  return std::string(plan::to_string(options.dtype));
}
void set_dtype(TrainerOptions& options, const std::string& text) {
  options.dtype = plan::dtype_from_string(text);
}

constexpr std::array<std::pair<std::string_view, plan::DType>, 3> kPrecisions{
    {{"float32", plan::DType::float32},
     {"bf16", plan::DType::bfloat16},
     {"fp16", plan::DType::float16}}};

void set_precision(TrainerOptions& options, const std::string& text) {
  options.autocast.reset();
  for (const auto& [name, dtype] : kPrecisions)
    if (name == text && dtype != plan::DType::float32) options.autocast = dtype;
}

std::string loss_scale_text(const TrainerOptions& options) {
  return fmt::format("{}", options.loss_scaling.value_or(GradScalerOptions()).initial);
}
void set_loss_scale(TrainerOptions& options, const std::string& text) {
  if (text == loss_scale_text(options)) return;
  if (!options.loss_scaling) options.loss_scaling.emplace();
  // The row's kind has shown that the text is a number. std::stod would follow the locale, and
  // throw for numbers near 0.
  std::from_chars(text.data(), text.data() + text.size(), options.loss_scaling->initial);
}

}  // namespace

std::string precision_text(const TrainerOptions& options) {
  const plan::DType type = options.autocast.value_or(plan::DType::float32);
  for (const auto& [name, dtype] : kPrecisions)
    if (options.autocast && dtype == type) return std::string(name);
  return std::string(plan::to_string(type));
}

config::Rows rows_of(const CheckpointOptions*) {
  using O = CheckpointOptions;
  return config::all_of<O>(
      {config::row(&O::dir, {.name = "checkpoint.dir",
                             .meaning = "Folder of the checkpoints. A run that finds one there "
                                        "continues from it; empty: a folder of the run.",
                             .agreed = false}),
       config::row_as_text<O>(
           every_text, set_every,
           {.name = "checkpoint.every",
            .meaning =
                "When to save: `100 steps`, `2 epochs`, or one of each with `and` between them; "
                "empty or `never`: only at the end."}),
       config::no_row(&O::every_steps),
       config::row(&O::keep, {.name = "checkpoint.keep",
                              .meaning = "The number of newest checkpoints that stay.",
                              .range = config::count_from(1)}),
       config::row(&O::keep_every, {.name = "checkpoint.keep_every",
                                    .meaning = "Checkpoints of steps that are a multiple of this "
                                               "number stay for ever; 0: none does.",
                                    .range = config::at_least(0)}),
       config::row(
           &O::keep_best,
           {.name = "checkpoint.keep_best",
            .meaning = "The number of checkpoints with the best checkpoint.measure that stay too. "
                       "Only those saved right after an evaluation count.",
            .range = config::count_from(0)}),
       config::row(&O::measure,
                   {.name = "checkpoint.measure",
                    .meaning = "The value on the held-out samples by which checkpoint.keep_best "
                               "compares: loss, accuracy, or a metric that a programme "
                               "registers."}),
       config::row(
           &O::memory_every,
           {.name = "checkpoint.memory_every",
            .meaning = "Elastic jobs whose workers have parts of the model (mesh.*, shard.level): "
                       "steps between copies of each worker's part in the memory of another "
                       "worker, from which a lost part comes back (docs/recovery.md); 0: none.",
            .range = config::at_least(0)}),
       config::row(&O::background,
                   {.name = "checkpoint.background",
                    .meaning = "Continue to train while a copy in memory is written; false: "
                               "training waits for the disk, and needs no memory for a copy."}),
       config::row(
           &O::writers,
           {.name = "checkpoint.writers",
            .meaning = "The workers that write a part of each checkpoint: the first of each host "
                       "(hosts; on one host worker 0 writes all of it), or all (ranks; a "
                       "checkpoint is lost if any of them dies while it is written).",
            .choices = config::one_of({"hosts", "ranks"})})});
}

config::Rows rows_of(const InjectOptions*) {
  using O = InjectOptions;
  return config::all_of<O>(
      {config::row_as_text<O>(
           faults_text, set_faults,
           {.name = "inject.faults",
            .meaning = "Faults to inject into the run, such as `kill:rank=1@step=40` "
                       "(docs/faults.md); none: no faults. --inject sets it."}),
       config::no_row(&O::marks)});
}

namespace {

auto rows_of_strategy() {
  using O = TrainerOptions;
  return config::group(
      config::row(
          &O::strategy,
          {.name = "strategy.name",
           .meaning = "How the work is spread; auto: pipeline, tensor or sharded if mesh.* "
                      "or shard.level say so, else multi_worker for several workers, "
                      "else mirrored for several replicas, else one_device.",
           .choices = [] { return config::with("auto", plan::strategies()); }}),
      config::row(&O::replicas, {.name = "strategy.replicas",
                                 .meaning = "Replicas in each worker; auto: 1, and for mirrored "
                                            "and central_storage one for each core (at most 8).",
                                 .range = config::from_to(1, 1024),
                                 .automatic = -1}),
      config::row(&O::share_parameters,
                  {.name = "strategy.share_parameters",
                   .meaning = "Keep one copy of parameters and optimizer state for all replicas "
                              "of a host, if the optimizer and the backend allow it."}),
      config::row(&O::sync_batch_norm,
                  {.name = "strategy.sync_batch_norm",
                   .meaning = "Compute batch norm over the samples of all replicas, as one "
                              "device does with the whole batch."}),
      config::part(&O::compression), config::part(&O::local), config::part(&O::buckets),
      config::part(&O::division), config::part(&O::ps));
}

auto rows_of_length() {
  using O = TrainerOptions;
  return config::group(
      config::part(&O::rate_scaling), config::part(&O::schedule),
      config::row(&O::schedule_every_epochs,
                  {.name = "schedule.every",
                   .meaning = "step: epochs between decays; must be above 0 then.",
                   .range = config::at_least(0),
                   .only_for = {"schedule.name", {"step"}}}),
      config::row(
          &O::epochs,
          {.name = "train.epochs",
           .meaning = "Passes over the training set; 0 saves the initial weights; auto: 10, "
                      "unless train.steps is given.",
           .range = config::at_least(0),
           .automatic = -1,
           .instead_of = "train.steps"}),
      config::row(&O::steps, {.name = "train.steps",
                              .meaning = "Updates, instead of epochs; 0 saves the initial "
                                         "weights; auto: as many as the epochs take.",
                              .range = config::at_least(0),
                              .automatic = -1,
                              .instead_of = "train.epochs"}),
      config::row(&O::seed, {.name = "train.seed",
                             .meaning = "Decides initial weights, order of samples and dropout.",
                             .range = config::at_least(0)}));
}

// The options that decide what a step computes.
auto rows_of_numbers() {
  using O = TrainerOptions;
  return config::group(
      config::row_as_text<O>(
          dtype_text, set_dtype,
          {.name = "train.dtype",
           .meaning = "Type of parameters and data; the 16-bit types have float32 masters.",
           .choices = config::one_of({"float32", "float64", "bfloat16", "float16"})}),
      config::row_as_text<O>(
          precision_text, set_precision,
          {.name = "train.precision",
           .meaning = "The precision of forward and backward where that is safe (autocast); "
                      "parameters stay float32. fp16 turns loss scaling on.",
           .choices = config::one_of({"float32", "bf16", "fp16"})}),
      config::row_as_text<O>(
          loss_scale_text, set_loss_scale,
          {.name = "train.loss_scale",
           .meaning = "fp16, float16: the first factor of losses. It is halved after an overflow "
                      "and doubled after 2000 steps without one.",
           .range = config::above(0),
           .kind = config::Kind::number}),
      config::row(
          &O::ema_decay,
          {.name = "train.ema_decay",
           .meaning =
               "Decay of an average of the parameters, which evaluation then uses; 0: none.",
           .range = config::from_below(0, 1)}),
      config::row(
          &O::accumulate,
          {.name = "train.accumulate",
           .meaning = "Parts into which each replica cuts its share of a batch, to save memory; "
                      "auto: as many as train.micro_batch asks for, or 1.",
           .range = config::count_from(1),
           .automatic = 0}),
      config::row(
          &O::micro_batch,
          {.name = "train.micro_batch",
           .meaning = "Samples of a replica that go through the model at once: data.batch = "
                      "train.micro_batch x train.accumulate x replicas, and two of them that are "
                      "given fix the third; auto: no rule.",
           .range = config::at_least(1),
           .automatic = 0}),
      config::row(
          &O::clip_norm,
          {.name = "train.clip_norm",
           .meaning = "Largest global norm of the gradients; 0: no clipping; inf: the norm "
                      "is computed, and nothing is clipped.",
           .range = config::at_least_or_infinite(0)}),
      config::row(
          &O::evaluate_every,
          {.name = "train.evaluate_every",
           .meaning = "Epochs between tests on the held-out samples; 0: a test at the end only.",
           .range = config::at_least(0)}),
      config::part(&O::memory), config::part(&O::early_stop), config::part(&O::evaluator),
      config::part(&O::guard), config::part(&O::inject));
}

auto rows_of_run() {
  using O = TrainerOptions;
  return config::group(
      config::row(&O::virtual_shards,
                  {.name = "reproducible.virtual_shards",
                   .meaning = "Pieces of the global batch. Each is computed apart, and all are "
                              "added up in a fixed order, so any number of replicas, also one "
                              "that changes, ends with the same bits (docs/numerics.md); 0: off.",
                   .range = config::from_to(0, 1024)}),
      config::part(&O::resize),
      config::row(&O::batch,
                  {.name = "data.batch",
                   .meaning = "The global batch: samples per step over all replicas together; "
                              "auto: as many as train.micro_batch gives.",
                   .range = config::at_least(1),
                   .automatic = 0}),
      config::part(&O::shuffle),
      config::row(&O::drop_last,
                  {.name = "data.drop_last",
                   .meaning = "Leave out the last batch of an epoch if it is smaller."}),
      config::row(&O::loader_threads,
                  {.name = "data.threads",
                   .meaning = "Threads of each replica that prepare batches ahead; 0: none; "
                              "auto: tuned while training goes on (docs/input.md).",
                   .range = config::from_to(0, 256),
                   .automatic = -1,
                   .agreed = false}),
      config::row(&O::prefetch, {.name = "data.prefetch",
                                 .meaning = "Batches that each replica holds ready, at least "
                                            "one for each of data.threads; auto: tuned.",
                                 .range = config::from_to(0, 1024),
                                 .automatic = -1,
                                 .agreed = false}),
      config::no_row(&O::input_bytes), config::no_row(&O::cache_bytes), config::no_row(&O::caches),
      config::row(&O::device,
                  {.name = "device.name",
                   .meaning = "The device that computes: cpu, cuda (each replica of a host takes "
                              "the next one), cuda:1, or another device of LibTorch "
                              "(docs/devices.md).",
                   .agreed = false}),
      config::row(&O::threads,
                  {.name = "device.threads",
                   .meaning = "Threads of each replica; auto: cores / replicas of the host, at "
                              "least 1, and 1 with reproducible.virtual_shards.",
                   .range = config::from_to(1, 4096),
                   .automatic = 0,
                   .agreed = false}),
      config::part(&O::checkpoint), config::part(&O::cost), config::no_row(&O::sinks),
      config::no_row(&O::callbacks), config::no_row(&O::publish), config::no_row(&O::config),
      config::no_row(&O::started_at));
}

}  // namespace

config::Rows rows_of(const TrainerOptions*) {
  return config::all_of<TrainerOptions>(rows_of_strategy(), rows_of_length(), rows_of_numbers(),
                                        rows_of_run());
}

}  // namespace trireme
