#include <fmt/format.h>

#include <trireme/train/first_lines.h>

namespace trireme {
namespace {

std::string rate_line(const TrainerOptions& options, double scaled_rate) {
  const double scale = rate_scale(options.rate_scaling, options.batch);
  return fmt::format("learning rate {:g} = {:g} x {:g} ({}: batch {} against {}){}", scaled_rate,
                     scaled_rate / scale, scale, options.rate_scaling.rule, options.batch,
                     options.rate_scaling.base_batch,
                     scale > 2 && options.schedule.warmup_steps == 0
                         ? "; without warm-up: try schedule.warmup_steps"
                         : "");
}

}  // namespace

std::string precision_of(const TrainerOptions& options) {
  const std::string parameters(plan::to_string(options.dtype));
  return options.autocast
             ? fmt::format("{}, parameters {}", plan::to_string(*options.autocast), parameters)
             : parameters;
}

std::vector<std::string> first_lines(const TrainerOptions& options, int world_size,
                                     double scaled_rate) {
  std::vector<std::string> lines;
  if (options.rate_scaling.rule != "none") lines.push_back(rate_line(options, scaled_rate));
  if (options.autocast || plan::bytes_of(options.dtype) == 2)
    lines.push_back(fmt::format("precision {}{}", precision_of(options),
                                options.loss_scaling ? ", with loss scaling" : ""));
  if (options.ema_decay > 0)
    lines.push_back(
        fmt::format("evaluation uses averages of the parameters, decay {:g}", options.ema_decay));
  if (world_size == 1) return lines;
  if (options.sync_batch_norm) lines.emplace_back("batch norm over the samples of all replicas");
  if (options.compression.name != "none")
    lines.push_back("gradients are compressed by " + options.compression.name);
  if (options.local.steps > 1)
    lines.push_back(fmt::format(
        "replicas take steps separately and are averaged every {} steps{}", options.local.steps,
        options.local.after > 0 ? fmt::format(", after step {}", options.local.after) : ""));
  return lines;
}

}  // namespace trireme
