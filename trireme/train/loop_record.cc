#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/optimizer.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/hash.h>
#include <trireme/base/unix_time.h>
#include <trireme/base/version.h>
#include <trireme/monitor/readers.h>
#include <trireme/train/loop_record.h>
#include <trireme/train/refuse.h>
#include <trireme/train/report.h>
#include <trireme/train/state_transfer.h>
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

namespace trireme {
namespace {

using LoopClock = std::chrono::steady_clock;

double seconds_since(LoopClock::time_point start) {
  return std::chrono::duration<double>(LoopClock::now() - start).count();
}

Json as_json(const std::map<std::string, double>& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) json[name] = finite_or_null(value);
  return json;
}

// Small enough that sums of squares over thousands of ranks are exact in float64.
double digest_of_names(const std::map<std::string, double>& values) {
  uint64_t digest = values.size();
  for (const auto& [name, value] : values)
    for (const char letter : name) digest = mix64(digest, static_cast<uint64_t>(letter), 0);
  return static_cast<double>(digest >> 44);
}

}  // namespace

struct LoopRecord::Impl {
  World& world;
  const LoopRecordOptions options;
  const std::shared_ptr<OwnLoop> loop = world.own_loop();
  const std::shared_ptr<const void> token = std::make_shared<int>();  // It tells ends of steps.
  const std::shared_ptr<const LoopTurns::Part> own_part = std::make_shared<const LoopTurns::Part>(
      LoopTurns::Part{{"LoopRecord::step()", "LoopRecord::end()"},
                      [this](const LoopTurns::Turn& turn) { answer(turn); }});
  int64_t part_number = 0;  // In the loop's turns.
  monitor::RunFiles files;
  std::unique_ptr<monitor::Sink> sinks;
  monitor::PssSampler pss;
  const LoopClock::time_point began = LoopClock::now();
  LoopClock::time_point step_began = began;

  int64_t step_ = 0, resumed_from = 0, loads_seen = 0;
  std::optional<int64_t> sought;  // The step of a state that was loaded since.
  bool has_started = false;       // The sinks of this process know of the start.
  std::map<std::string, double> pending, newest_scalars;
  std::vector<double> losses;
  std::optional<Evaluation> evaluation;
  double first_step_after = 0, train_seconds = 0;
  int64_t train_samples = 0;

  Impl(World& the_world, LoopRecordOptions the_options)
      : world(the_world), options(std::move(the_options)) {
    for (const auto& [name, value] : {std::pair{"total_steps", options.total_steps},
                                      {"steps_per_epoch", options.steps_per_epoch}})
      if (value < 0)
        refuse_option(fmt::format("LoopRecordOptions::{} is {}", name, value),
                      "0 for unknown, or more");
    if (!options.dir.empty()) {
      const std::filesystem::path dir = options.dir;
      files.report = dir / "report.json";
      if (options.json_lines) files.log = dir / "log.jsonl";
      if (options.tensorboard) files.events = dir / "events";
    }
    part_number = loop->add(own_part);
    world.connect();
    if (first() && !options.dir.empty()) require_writable_folder(options.dir);
    sinks = monitor::readers_of_rank_0(files, {.progress = options.progress});
    ++loop->meetings;
    step_ = resumed_from = loop->steps();
    loads_seen = loop->loads();
  }

  ~Impl() { --loop->meetings; }

  bool first() const { return world.rank() == 0; }

  void tell(const monitor::Event& event) {
    begin();
    if (first()) sinks->take(event);
    world.tell_event({.rank = world.rank(), .time = unix_seconds(), .event = event});
  }

  // Another process may be rank 0 from a generation on.
  void begin() {
    if (!first() || std::exchange(has_started, true)) return;
    monitor::RunStart start;
    start.name = options.name;
    start.strategy = "own_loop";
    start.workers = start.world_size = world.size();
    start.total_steps = options.total_steps;
    start.first_step = step_;
    start.steps_per_epoch = options.steps_per_epoch;
    sinks->take(start);
  }

  // The loop may have gone on from another step since the last call.
  void follow() {
    if (std::exchange(loads_seen, loop->loads()) == loop->loads()) return;
    const int64_t origin = std::exchange(sought, {}).value_or(loop->origin());
    if (step_ == resumed_from) resumed_from = origin;
    step_ = origin;
    losses.resize(static_cast<size_t>(std::max<int64_t>(0, step_ - resumed_from)), std::nan(""));
    step_began = LoopClock::now();
    if (has_started) {
      monitor::ContinueRecord from;
      from.generation = world.identity().generation;
      from.step = step_;
      tell(from);
    }
  }

  // The facts of a step besides the values. A rank without batches has them from another rank.
  struct Told {
    double names = 0;  // A digest of them.
    int64_t values = 0, samples = 0;
    double rate = 0;
  };
  static constexpr int64_t kStepOfRecord = 0, kEndOfRecord = 1;

  void answer(const LoopTurns::Turn& turn) {
    if (turn.what == kEndOfRecord)
      throw Error(ErrorCode::invalid_argument, "train",
                  "LoopRecord::end() on a rank, while another one waits in join()",
                  "join() on all ranks, and end() behind it");
    pending.clear();
    step(0, {static_cast<double>(turn.facts[0]), turn.facts[1], turn.facts[2],
             std::bit_cast<double>(turn.facts[3])});
  }

  double step_of_batch(double loss, double rate) {
    const Told told{digest_of_names(pending), std::ssize(pending), loop->batch.of_all, rate};
    loop->begin(part_number, kStepOfRecord,
                {static_cast<int64_t>(told.names), told.values, told.samples,
                 std::bit_cast<int64_t>(told.rate)});
    return step(loss, told);
  }

  // COLLECTIVE. A rank without batches learns the names of the values.
  void learn_names(int64_t values) {
    if (!loop->turns || !loop->turns->some_have_none() || values == 0) return;
    Json names = Json::array();
    for (const auto& [name, value] : pending) names.push_back(name);
    const std::vector<Json> all = gather_values(*world.loop_group(), names);
    for (const Json& name : all[static_cast<size_t>(loop->turns->newest())])
      pending.emplace(name.get<std::string>(), 0.0);
  }

  // COLLECTIVE. The weighted means of the loss and of the pending values over all ranks.
  std::vector<double> means(double loss, const Told& told) {
    const double names = told.names, own_weight = loop->has_joined ? 0 : loop->weight();
    const at::Tensor head =
        at::tensor({names, names * names, own_weight, loss * own_weight}, at::kDouble);
    world.loop_group()->all_reduce(head);
    const double* const sum = head.const_data_ptr<double>();
    // The numbers are equal exactly if their variance is 0.
    if (sum[1] * world.size() != sum[0] * sum[0]) refuse_names();
    std::vector<double> result = {loop->batch.weight >= 0 ? sum[3] : sum[3] / sum[2]};
    learn_names(told.values);
    if (pending.empty()) return result;
    for (const auto& [name, value] : pending) result.push_back(value * own_weight / sum[2]);
    const at::Tensor values =
        at::tensor(std::vector<double>(result.begin() + 1, result.end()), at::kDouble);
    world.loop_group()->all_reduce(values);
    std::copy_n(values.const_data_ptr<double>(), values.numel(), result.begin() + 1);
    return result;
  }

  // COLLECTIVE.
  void refuse_names() {
    Json names = Json::array();
    for (const auto& [name, value] : pending) names.push_back(name);
    std::vector<std::string> lines;
    const std::vector<Json> all = gather_values(*world.loop_group(), names);
    for (size_t rank = 0; rank < all.size(); ++rank)
      lines.push_back(fmt::format("rank {}: {}", rank, all[rank].dump()));
    throw Error(ErrorCode::invalid_argument, "train",
                fmt::format("the ranks record other values in step {}: {}", step_ + 1,
                            fmt::join(lines, ", ")),
                "the same calls of LoopRecord::scalar() on all ranks");
  }

  // COLLECTIVE.
  void refuse_nan(double loss) {
    std::vector<std::string> ranks;
    const std::vector<Json> all = gather_values(*world.loop_group(), Json(std::isfinite(loss)));
    for (size_t rank = 0; rank < all.size(); ++rank)
      if (!all[rank].get<bool>()) ranks.push_back(std::to_string(rank));
    throw Error(ErrorCode::internal, "train",
                fmt::format("the loss of rank {} is NaN or infinite in step {}",
                            fmt::join(ranks, ", "), step_ + 1),
                "a look at that rank's data, a smaller learning rate, or "
                "LoopRecordOptions::stop_on_nan=false");
  }

  double step(double loss, const Told& told) {
    follow();
    loop->enter(Phase::callbacks);
    const std::vector<double> all = means(loss, told);
    if (options.stop_on_nan && !std::isfinite(all[0])) refuse_nan(loss);
    begin();
    ++step_;
    const double took = seconds_since(std::exchange(step_began, LoopClock::now()));
    if (first_step_after == 0) first_step_after = seconds_since(began);
    train_seconds += took;
    train_samples += told.samples;
    losses.push_back(all[0]);
    monitor::StepRecord record;
    record.step = step_;
    record.epoch = epoch_of(step_);
    record.loss = all[0];
    record.learning_rate = told.rate;
    record.samples = told.samples;
    record.seconds = took;
    tell(record);
    tell_scalars(all);
    if (loop->end_step(token, OwnLoop::Teller::record, step_)) loop->enter(Phase::data);
    return all[0];
  }

  int64_t epoch_of(int64_t step) const {
    return options.steps_per_epoch > 0 ? std::max<int64_t>(0, step - 1) / options.steps_per_epoch
                                       : 0;
  }

  void tell_scalars(const std::vector<double>& all) {
    if (pending.empty()) return;
    size_t at = 1;
    for (auto& [name, value] : pending) value = all[at++];
    newest_scalars = std::exchange(pending, {});
    if (first()) sinks->take(monitor::ScalarRecord{step_, newest_scalars});
  }

  // COLLECTIVE.
  Json report() {
    at::Tensor sums =
        at::tensor({monitor::process_cpu_seconds(), static_cast<double>(pss.peak())}, at::kDouble);
    world.loop_group()->all_reduce(sums);
    double cpu = sums[0].item<double>();
    if (first()) cpu += world.coordinator_cpu_seconds();
    const double wall = seconds_since(began);
    Json json = {
        {"trireme", version()},
        {"strategy", "own_loop"},
        {"workers", world.size()},
        {"world_size", world.size()},
        {"steps", step_},
        {"epochs", options.steps_per_epoch > 0 ? Json(step_ / options.steps_per_epoch) : Json()},
        {"resumed_from_step", resumed_from},
        {"stopped", loop->stop},
        {"stop_reason", loop->stop ? Json(kStoppedOnRequest) : Json()},
        {"train_loss", losses.empty() ? Json() : finite_or_null(mean_of_last_losses())}};
    json["eval"] = Json();
    if (evaluation)
      json["eval"] = {{"loss", finite_or_null(evaluation->loss)},
                      {"accuracy", finite_or_null(evaluation->accuracy)},
                      {"metrics", as_json(evaluation->metrics)}};
    json["scalars"] = as_json(newest_scalars);
    json["samples_per_second"] =
        train_samples > 0 ? Json(static_cast<double>(train_samples) / train_seconds) : Json();
    json["wall_seconds"] = wall;
    json["seconds_to_first_step"] = first_step_after > 0 ? Json(first_step_after) : Json();
    json["cpu_seconds"] = cpu;
    json["peak_pss_bytes"] = static_cast<int64_t>(sums[1].item<double>());
    json["cost"] = monitor::cost_of(options.cost, cpu, wall, world.size());
    json["generations"] = world.is_elastic() ? world.generations() : Json::array();
    const Json times = first() ? world.times() : Json::object();
    for (const char* part : {"phases", "stragglers"})
      json[part] = times.value(part, Json::array());
    json["files"] = Json::object();
    for (const auto& [key, path] :
         {std::pair{"report", files.report}, {"log", files.log}, {"events", files.events}})
      if (!path.empty()) json["files"][key] = path.string();
    json["loss_history"] = Json::array();
    for (const double loss : losses) json["loss_history"].push_back(finite_or_null(loss));
    return json;
  }

  // Over as many steps as an epoch has.
  double mean_of_last_losses() const {
    const auto all = static_cast<int64_t>(losses.size());
    const int64_t count =
        options.steps_per_epoch > 0 ? std::min(options.steps_per_epoch, all) : all;
    double sum = 0;
    for (int64_t i = all - count; i < all; ++i) sum += losses[static_cast<size_t>(i)];
    return sum / static_cast<double>(count);
  }

  Json end() {
    loop->begin(part_number, kEndOfRecord);
    follow();
    Json result = broadcast_value(*world.loop_group(), report());
    begin();
    if (first() && !files.report.empty())
      write_file_atomically(files.report, result.dump(2) + "\n");
    tell(monitor::RunEnd{loop->stop, result});
    return result;
  }
};

LoopRecord::LoopRecord(World& world, LoopRecordOptions options)
    : impl_(std::make_unique<Impl>(world, std::move(options))) {}
LoopRecord::~LoopRecord() = default;

void LoopRecord::scalar(const std::string& name, double value) {
  if (name.empty())
    refuse_option("LoopRecord::scalar() was given no name", "a name such as \"critic/loss\"");
  impl_->pending[name] = value;
}

double LoopRecord::step(const at::Tensor& loss, const torch::optim::Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  double rate = 0;
  if (!optimizer.param_groups().empty() && optimizer.param_groups()[0].has_options())
    rate = optimizer.param_groups()[0].options().get_lr();
  return impl_->step_of_batch(loss.item<double>(), rate);
}
double LoopRecord::step(double loss, double learning_rate) {
  return impl_->step_of_batch(loss, learning_rate);
}

void LoopRecord::evaluated(double loss, double accuracy, std::map<std::string, double> metrics) {
  impl_->follow();
  monitor::EvalRecord found;
  found.step = impl_->step_;
  found.epoch = impl_->epoch_of(impl_->step_);
  found.loss = loss;
  found.accuracy = accuracy;
  found.metrics = std::move(metrics);
  impl_->evaluation = Evaluation{loss, accuracy, 0, found.metrics};
  impl_->tell(found);
}

int64_t LoopRecord::steps() const {
  impl_->follow();
  return impl_->step_;
}
void LoopRecord::go_on_from(int64_t step) { impl_->sought = step; }

void LoopRecord::message(const std::string& text) {
  impl_->follow();
  impl_->tell(monitor::Message{text});
}

Json LoopRecord::end() { return impl_->end(); }

}  // namespace trireme
