// Metrics, losses and schedules of a programme's own, for a Job or by name in a configuration.
#pragma once
#include <trireme/parallel/engine.h>
#include <trireme/train/measure.h>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace trireme {

// A value of an evaluation besides loss and accuracy. It is exact over any number of ranks,
// because sums over samples travel, and the value is made of the sums of all.
struct Metric {
  std::string name;  // Such as "rmse". Logs, TensorBoard and the report have it.
  // A batch adds this: float64 [size], such as {sum of squares, number of samples}.
  OfBatch<at::Tensor> sums;
  // Makes the value of the sums over all samples. Default: sums[0] / sums[1].
  std::function<double(const at::Tensor& sums)> value;
  int64_t size = 2;
  bool higher_is_better =
      false;  // As checkpoint.measure, and as that of early_stop and evaluator.
};
// The mean over all samples of a value per sample: `values` returns [n], of any type.
Metric mean_metric(std::string name, OfBatch<at::Tensor> values, bool higher_is_better = false);

// The sums of an evaluation for a Job with these metrics, in their order. One thread.
class MetricSums {
 public:
  explicit MetricSums(const std::vector<Metric>& metrics);
  // Throws Error(invalid_argument) naming the metric whose sums have another size.
  void add(const at::Tensor& output, const Batch& part);
  at::Tensor sums;  // float64 [sizes of all metrics, one after the other].
  std::map<std::string, double> values() const;

 private:
  const std::vector<Metric>& metrics_;
};

// Loss, accuracy, or one of the metrics.
Measure measure_of(const std::vector<Metric>& metrics, const std::string& name);
// The names of the metrics, in their order.
std::vector<std::string> names_of(const std::vector<Metric>& metrics);

// Throws Error(invalid_argument) for a metric without name, with the name of a value that all
// evaluations have or of another metric, without `sums`, or with a size below 1.
void check(const std::vector<Metric>& metrics);

// Adds a name for train.metrics. Call it, and the functions below, before the configuration is
// read, on every rank. Throw Error(invalid_argument) as check() does, and if a name is taken.
void register_metric(Metric metric);
std::vector<Metric> registered_metrics();
// Adds a name for loss.name.
void register_loss(const std::string& name, LossFunction loss);
// The loss that loss.name names; empty for the default, cross_entropy.
LossFunction find_loss(const std::string& name);

}  // namespace trireme
