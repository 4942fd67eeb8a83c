#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/config/value.h>
#include <trireme/train/refuse.h>
#include <trireme/train/resize.h>
#include <algorithm>
#include <cmath>

namespace trireme {

config::Rows rows_of(const ResizeOptions*) {
  using O = ResizeOptions;
  return config::all_of<O>(
      {config::row(
           &O::batch,
           {.name = "elastic.batch",
            .meaning =
                "What happens when the number of workers changes (docs/recovery.md). keep: "
                "data.batch stays, and fewer workers take larger shares in more passes. scale: "
                "each worker's share stays, so the global batch is that share times the workers.",
            .choices = config::one_of({"keep", "scale"})}),
       config::row(&O::rate,
                   {.name = "elastic.lr",
                    .meaning = "With elastic.batch scale: the learning rate follows the batch in "
                               "proportion (linear), with its square root (sqrt), or not (none).",
                    .choices = config::one_of({"none", "linear", "sqrt"})}),
       config::row(&O::warmup_steps,
                   {.name = "elastic.warmup_steps",
                    .meaning = "A learning rate that rises by elastic.lr does so linearly over "
                               "this many steps after each resize.",
                    .range = config::at_least(0)}),
       config::row(&O::workers, {.name = "elastic.workers",
                                 .meaning = "Workers for which data.batch and optimizer.lr were "
                                            "chosen; 0: as many as the run is started with.",
                                 .range = config::count_from(0)})});
}

void check(const ResizeOptions& options, int64_t batch) {
  config::check_values(options);
  if (options.rate != "none" && options.batch == "keep")
    refuse_option(
        fmt::format("elastic.lr is {}, but elastic.batch is keep: the learning rate follows the "
                    "batch, and that stays",
                    options.rate),
        "elastic.batch=scale, or elastic.lr=none");
  if (options.warmup_steps > 0 && options.rate == "none")
    refuse_option(
        fmt::format(
            "elastic.warmup_steps is {}, but elastic.lr is none: there is nothing to warm up to",
            options.warmup_steps),
        "elastic.lr=linear or sqrt");
  if (options.batch == "scale" && options.workers > 0 && batch % options.workers != 0)
    refuse_option(
        fmt::format("elastic.batch is scale, but a global batch of {} is not a multiple of {} "
                    "workers: each has a share of its own",
                    batch, options.workers),
        fmt::format("data.batch={}", (batch / options.workers + 1) * options.workers));
}

bool Resize::set_workers(int workers, int64_t step) {
  if (base_ == 0) base_ = options_.workers > 0 ? options_.workers : workers;
  if (workers == workers_) return false;
  const bool is_first = workers_ == 0;
  from_ = is_first ? 1 : rate_factor(step);
  since_ = step;
  const int64_t batch_before = is_first ? batch_ : batch();
  workers_ = workers;
  ResizeOptions at_base = options_;
  at_base.workers = base_;
  check(at_base, batch_);
  return batch() != batch_before || (!is_first && rate_target() != from_);
}

int64_t Resize::batch() const { return scales() ? batch_ / base_ * workers_ : batch_; }

double Resize::rate_target() const {
  if (options_.rate == "none") return 1;
  const double ratio = static_cast<double>(workers_) / static_cast<double>(base_);
  return options_.rate == "linear" ? ratio : std::sqrt(ratio);
}

double Resize::rate_factor(int64_t step) const {
  const double target = rate_target();
  const int64_t into = step - since_;
  if (target <= from_ || into >= options_.warmup_steps) return target;
  return from_ + (target - from_) * static_cast<double>(into + 1) /
                     static_cast<double>(options_.warmup_steps + 1);
}

int Resize::passes(int accumulate) const {
  if (scales() || workers_ >= base_) return accumulate;
  const auto largest = [&](int64_t workers) { return (batch_ + workers - 1) / workers; };
  const int64_t pass = (largest(base_) + accumulate - 1) / accumulate;
  return static_cast<int>((largest(workers_) + pass - 1) / pass);
}

std::string Resize::describe() const {
  std::string text = scales() ? fmt::format("a global batch of {} ({} worker{} x {})", batch(),
                                            workers_, workers_ == 1 ? "" : "s", batch_ / base_)
                              : fmt::format("a global batch of {}", batch());
  if (options_.rate == "none") return text;
  const bool warms_up = rate_target() > from_ && options_.warmup_steps > 0;
  return fmt::format("{}, learning rate x {:g} ({}{})", text, rate_target(), options_.rate,
                     warms_up ? fmt::format(", over {} steps", options_.warmup_steps) : "");
}

Json Resize::state() const {
  return {{"base", base_}, {"workers", workers_}, {"from", from_}, {"since", since_}};
}

void Resize::load(const Json& state) {
  // The checkpoint of a run that did not know sizes.
  if (!state.is_object()) return;
  base_ = state.at("base").get<int>();
  workers_ = state.at("workers").get<int>();
  from_ = state.at("from").get<double>();
  since_ = state.at("since").get<int64_t>();
  if (base_ < 1 || workers_ < 1)
    throw Error(ErrorCode::corrupt, "train",
                fmt::format("a checkpoint of {} workers, begun with {}", workers_, base_),
                "a checkpoint as Trireme wrote it");
}

}  // namespace trireme
