// The course of a run: its length, and the learning rates of its steps.
#pragma once
#include <trireme/train/progress.h>
#include <trireme/train/resize.h>
#include <trireme/train/trainer.h>
#include <cstdint>
#include <vector>

namespace trireme {

// The plan of the batches of a run with this global batch.
plan::DataPlanOptions data_plan_of(const TrainerOptions& options, int64_t samples, int64_t batch);

// Keeps a reference to the options. One thread.
class Course {
 public:
  // `samples` is the size of the training set, and `rates` are the optimizer's. Throws
  // Error(invalid_argument) that names the option of the schedule.
  Course(const TrainerOptions& options, int64_t samples, std::vector<double> rates);

  const RunLength& length() const { return length_; }
  // The rate from which the schedule starts, of the optimizer's first group.
  double base_rate() const { return rates_.empty() ? 0 : rates_[0]; }
  // The factor of all rates for the next step.
  double factor(const Progress& progress, const Resize& resize) const;
  std::vector<double> rates(double factor) const;

 private:
  const TrainerOptions& options_;
  RunLength length_;
  ScheduleOptions schedule_;
  std::vector<double> rates_;
};

}  // namespace trireme
