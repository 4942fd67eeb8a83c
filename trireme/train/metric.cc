#include <ATen/core/Tensor.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <trireme/config/registry.h>
#include <trireme/train/metric.h>
#include <trireme/train/own_names.h>
#include <trireme/train/refuse.h>
#include <mutex>
#include <set>

namespace trireme {
namespace {

struct RegisteredMetrics {
  std::mutex mutex;
  std::vector<Metric> all;
};
RegisteredMetrics& registered() {
  static RegisteredMetrics metrics;
  return metrics;
}

config::Registry<LossFunction>& losses() {
  static config::Registry<LossFunction> known(
      "loss",
      {{"mse",
        [](const at::Tensor& output, const at::Tensor& target) {
          return at::mse_loss(output, target.to(output.scalar_type()).view_as(output));
        }}},
      kDefaultLoss);
  return known;
}

}  // namespace

Metric mean_metric(std::string name, OfBatch<at::Tensor> values, bool higher_is_better) {
  Metric metric{.name = std::move(name), .higher_is_better = higher_is_better};
  metric.sums = [values = std::move(values)](const at::Tensor& output, const Batch& batch) {
    const at::Tensor each = values(output, batch).to(at::kDouble);
    return at::tensor({each.sum().item<double>(), static_cast<double>(each.numel())}, at::kDouble);
  };
  return metric;
}

MetricSums::MetricSums(const std::vector<Metric>& metrics) : metrics_(metrics) {
  int64_t size = 0;
  for (const Metric& metric : metrics) size += metric.size;
  sums = at::zeros({size}, at::kDouble);
}

void MetricSums::add(const at::Tensor& output, const Batch& part) {
  int64_t first = 0;
  for (const Metric& metric : metrics_) {
    const at::Tensor more = metric.sums(output, part);
    if (!more.defined() || more.dim() != 1 || more.size(0) != metric.size)
      refuse_option(
          fmt::format(
              "the sums of metric '{}' have shape {}, and its size is {}", metric.name,
              more.defined() ? fmt::format("[{}]", fmt::join(more.sizes(), ", ")) : "of no tensor",
              metric.size),
          "a tensor of one dimension with Metric::size elements");
    sums.narrow(0, first, metric.size).add_(more.to(at::kCPU, at::kDouble));
    first += metric.size;
  }
}

std::map<std::string, double> MetricSums::values() const {
  std::map<std::string, double> values;
  int64_t first = 0;
  for (const Metric& metric : metrics_) {
    const at::Tensor own = sums.narrow(0, first, metric.size);
    first += metric.size;
    values[metric.name] =
        metric.value ? metric.value(own) : own[0].item<double>() / own[1].item<double>();
  }
  return values;
}

Measure measure_of(const std::vector<Metric>& metrics, const std::string& name) {
  for (const Metric& metric : metrics)
    if (metric.name == name) return {name, metric.higher_is_better};
  return shipped_measure(name);
}

std::vector<std::string> names_of(const std::vector<Metric>& metrics) {
  std::vector<std::string> names;
  for (const Metric& metric : metrics) names.push_back(metric.name);
  return names;
}

void check(const std::vector<Metric>& metrics) {
  std::set<std::string> names = {"loss", "accuracy", "samples"};
  for (const Metric& metric : metrics) {
    if (metric.name.empty()) refuse_option("a metric has no name", "Metric::name");
    if (!names.insert(metric.name).second)
      refuse_option(fmt::format("an evaluation already has a value '{}'", metric.name),
                    "another name for the metric");
    if (!metric.sums)
      refuse_option(fmt::format("nothing computes the metric '{}'", metric.name), "Metric::sums");
    if (metric.size < (metric.value ? 1 : 2))
      refuse_option(fmt::format("metric '{}' has size {}", metric.name, metric.size),
                    metric.value ? "1 or more" : "2 or more, or Metric::value");
  }
}

void register_metric(Metric metric) {
  auto& [mutex, all] = registered();
  const std::lock_guard lock(mutex);
  std::vector<Metric> with_new = all;
  with_new.push_back(metric);
  check(with_new);
  all = std::move(with_new);
  add_metric_name(metric.name);
}

std::vector<Metric> registered_metrics() {
  auto& [mutex, all] = registered();
  const std::lock_guard lock(mutex);
  return all;
}

void register_loss(const std::string& name, LossFunction loss) {
  losses().add(name, std::move(loss));
  add_loss_name(name);
}

LossFunction find_loss(const std::string& name) {
  return name == kDefaultLoss ? LossFunction() : losses().find(name);
}

}  // namespace trireme
