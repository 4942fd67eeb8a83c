// The value by which evaluations are compared. Pure; no torch.
#pragma once
#include <trireme/monitor/events.h>
#include <string>
#include <vector>

namespace trireme {

struct Measure {
  std::string name = "loss";  // loss, accuracy, or a metric of the programme (metric.h).
  bool higher_is_better = false;

  double value_in(const monitor::EvalRecord& found) const;  // NaN if the evaluation lacks it.
  // Whether `one` is better than `other` by more than this. NaN is never better.
  bool is_better(double one, double other, double by_more_than) const;
};

// Loss or accuracy. Other names are taken as those of metrics whose lower values are better.
Measure shipped_measure(const std::string& name);

// Throws Error(invalid_argument) that names the key unless `name` is loss, accuracy or one of
// `metrics`.
void check_measure(const std::string& key, const std::string& name,
                   const std::vector<std::string>& metrics);

}  // namespace trireme
