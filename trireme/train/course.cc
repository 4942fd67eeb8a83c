#include <trireme/train/course.h>

namespace trireme {

plan::DataPlanOptions data_plan_of(const TrainerOptions& options, int64_t samples, int64_t batch) {
  return {.samples = samples,
          .batch = batch,
          .seed = options.seed,
          .shuffle = options.shuffle,
          .drop_last = options.drop_last,
          .virtual_shards = options.virtual_shards};
}

Course::Course(const TrainerOptions& options, int64_t samples, std::vector<double> rates)
    : options_(options),
      length_{options.steps, options.epochs,
              plan::DataPlan(data_plan_of(options, samples, options.batch)).batches_per_epoch()},
      schedule_(options.schedule),
      rates_(std::move(rates)) {
  if (schedule_.total_steps == 0) schedule_.total_steps = length_.total_steps();
  if (schedule_.every_steps == 0)
    schedule_.every_steps = options.schedule_every_epochs * length_.batches_per_epoch;
  check(schedule_);
  const double scale = rate_scale(options.rate_scaling, options.batch);
  for (double& rate : rates_) rate *= scale;
}

// With another batch size, the number of samples decides how far an epoch's schedule is.
double Course::factor(const Progress& progress, const Resize& resize) const {
  const int64_t step = options_.steps >= 0 || !resize.scales()
                           ? progress.step
                           : progress.position.epoch * length_.batches_per_epoch +
                                 progress.position.consumed / options_.batch;
  return rate_factor(schedule_, step) * resize.rate_factor(progress.step);
}

std::vector<double> Course::rates(double factor) const {
  std::vector<double> rates = rates_;
  for (double& rate : rates) rate *= factor;
  return rates;
}

}  // namespace trireme
