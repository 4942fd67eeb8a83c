#include <fmt/format.h>
#include <trireme/watch/stragglers.h>
#include <algorithm>
#include <cmath>

namespace trireme::watch {
namespace {

constexpr double kFractionOfStep = 0.1, kLeastSeconds = 1e-3, kStandardErrors = 4;

PhaseTimes between(const PhaseTimes& from, const PhaseTimes& to) {
  PhaseTimes sum{to.steps - from.steps, {}, to.waiting - from.waiting, to.squares - from.squares};
  for (size_t i = 0; i < kPhases; ++i) sum.seconds[i] = to.seconds[i] - from.seconds[i];
  return sum;
}

// The squared standard error of a step's mean work.
double squared_error(const PhaseTimes& sum) {
  const auto n = static_cast<double>(sum.steps);
  return n < 2 ? 0 : std::max(0.0, sum.squares - sum.work() * sum.work() / n) / (n * (n - 1));
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

template <typename Value>
double median_of_others(size_t worker, const std::vector<PhaseTimes>& all, Value value) {
  std::vector<double> others;
  for (size_t other = 0; other < all.size(); ++other)
    if (other != worker) others.push_back(value(all[other]));
  return median(std::move(others));
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 9.95e-3 ? 1 : 0);
}

}  // namespace

std::string Straggler::describe(const std::string& name) const {
  if (to_step >= 0) return fmt::format("{} has not been a straggler since step {}", name, to_step);
  return fmt::format(
      "{} is a straggler: its {} takes {} a step, the others' {}; the others wait {} a step for "
      "it",
      name, to_string(phase), milliseconds(seconds), milliseconds(others), milliseconds(wait));
}

Json Straggler::to_json(int rank) const {
  return {{"rank", rank},
          {"phase", std::string(to_string(phase))},
          {"seconds", seconds},
          {"others_seconds", others},
          {"wait_seconds", wait},
          {"from_step", from_step},
          {"to_step", to_step < 0 ? Json(nullptr) : Json(to_step)}};
}

PhaseTimes mean_of(const PhaseTimes& sum) {
  PhaseTimes mean = sum;
  const auto steps = static_cast<double>(std::max<int64_t>(1, sum.steps));
  for (double& seconds : mean.seconds) seconds /= steps;
  mean.waiting /= steps;
  mean.squares /= steps;
  return mean;
}

Json to_json(const PhaseTimes& mean, int rank) {
  Json json = {{"rank", rank}, {"steps", mean.steps}, {"waiting", mean.waiting}};
  for (const Phase phase : kWork) json[std::string(to_string(phase))] = mean.of(phase);
  return json;
}

void Stragglers::note(int number, const PhaseTimes& times, int64_t step) {
  Worker& worker = workers_[static_cast<size_t>(number)];
  if (!worker.first_seen) worker.first_seen = times.steps;
  worker.now = times;
  worker.step = step;
  // The first step does not count: it includes the time of everything before it.
  if (!worker.begin && times.steps > *worker.first_seen) worker.begin = worker.from = times;
}

std::optional<PhaseTimes> Stragglers::mean_of(int number) const {
  const Worker& worker = workers_[static_cast<size_t>(number)];
  if (!worker.begin || worker.now.steps == worker.begin->steps) return std::nullopt;
  return watch::mean_of(between(*worker.begin, worker.now));
}

std::optional<Straggler> Stragglers::straggles(size_t worker,
                                               const std::vector<PhaseTimes>& sums) const {
  if (options_.factor == 0) return std::nullopt;
  std::vector<PhaseTimes> means;
  for (const PhaseTimes& sum : sums) means.push_back(watch::mean_of(sum));
  const PhaseTimes& its = means[worker];
  const double work = its.work(),
               others = median_of_others(worker, means,
                                         [](const PhaseTimes& mean) { return mean.work(); });
  const double chance = kStandardErrors * std::sqrt(squared_error(sums[worker]) +
                                                    median_of_others(worker, sums, squared_error));
  const double least = std::max({kLeastSeconds, kFractionOfStep * (work + its.waiting), chance});
  if (work <= options_.factor * others || work - others <= least) return std::nullopt;
  Straggler found{
      static_cast<int>(worker), Phase::forward, 0, 0, work - others, workers_[worker].step, -1};
  double most = -1;
  for (const Phase phase : kWork) {
    const double those =
        median_of_others(worker, means, [&](const PhaseTimes& mean) { return mean.of(phase); });
    if (its.of(phase) - those <= most) continue;
    most = its.of(phase) - those;
    found.phase = phase;
    found.seconds = its.of(phase);
    found.others = those;
  }
  return found;
}

std::vector<Straggler> Stragglers::judge(Time now) {
  std::vector<Straggler> changes;
  if (workers_.size() < 2 || options_.factor == 0) return changes;
  const bool all_began =
      std::ranges::all_of(workers_, [](const Worker& worker) { return worker.from.has_value(); });
  if (!all_began) return changes;
  if (!window_began_) window_began_ = now;
  const bool is_whole = std::ranges::all_of(
      workers_, [&](const Worker& it) { return it.now.steps - it.from->steps >= options_.steps; });
  if (now - *window_began_ < options_.window || !is_whole) return changes;
  std::vector<PhaseTimes> sums;
  for (const Worker& worker : workers_) sums.push_back(between(*worker.from, worker.now));
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    worker.from = worker.now;
    const std::optional<Straggler> straggler = straggles(i, sums);
    worker.streak = straggler.has_value() == worker.told.has_value() ? 0 : worker.streak + 1;
    if (worker.streak < options_.windows) continue;
    worker.streak = 0;
    if (straggler) {
      worker.told = found_.size();
      found_.push_back(*straggler);
      changes.push_back(*straggler);
    } else {
      Straggler& over = found_[*worker.told];
      over.to_step = worker.step;
      changes.push_back(over);
      worker.told.reset();
    }
  }
  window_began_ = now;
  return changes;
}

std::vector<Straggler> Stragglers::conclude() {
  if (!found_.empty() || workers_.size() < 2) return {};
  std::vector<PhaseTimes> sums;
  for (const Worker& worker : workers_) {
    if (!worker.begin || worker.now.steps - worker.begin->steps < options_.steps) return {};
    sums.push_back(between(*worker.begin, worker.now));
  }
  for (size_t i = 0; i < workers_.size(); ++i)
    if (const auto straggler = straggles(i, sums)) found_.push_back(*straggler);
  return found_;
}

}  // namespace trireme::watch
