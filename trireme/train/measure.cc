#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/train/measure.h>
#include <trireme/train/refuse.h>
#include <algorithm>
#include <limits>

namespace trireme {

double Measure::value_in(const monitor::EvalRecord& found) const {
  if (name == "loss") return found.loss;
  if (name == "accuracy") return found.accuracy;
  const auto metric = found.metrics.find(name);
  return metric != found.metrics.end() ? metric->second : std::numeric_limits<double>::quiet_NaN();
}

bool Measure::is_better(double one, double other, double by_more_than) const {
  return higher_is_better ? one - other > by_more_than : other - one > by_more_than;
}

Measure shipped_measure(const std::string& name) { return {name, name == "accuracy"}; }

void check_measure(const std::string& key, const std::string& name,
                   const std::vector<std::string>& metrics) {
  std::vector<std::string> known = {"loss", "accuracy"};
  known.insert(known.end(), metrics.begin(), metrics.end());
  if (std::ranges::find(known, name) != known.end()) return;
  refuse_option(fmt::format("{} is \"{}\", and an evaluation has no such value", key, name),
                fmt::format("{}, or a metric of train.metrics (Job::metrics in C++)",
                            fmt::join(known, ", ")));
}

}  // namespace trireme
