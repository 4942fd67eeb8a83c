#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/config/value.h>
#include <trireme/train/guards.h>
#include <trireme/train/refuse.h>
#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

constexpr int kMostInARow = 10, kMostTimesDiffered = 3;
constexpr const char* kRemedy = "a smaller optimizer.lr, train.clip_norm, or a look at the data";

// The lower median of the window, or 0 before the window is full.
double median(const std::deque<double>& values, int64_t window) {
  if (static_cast<int64_t>(values.size()) < window) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<int64_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void keep(std::deque<double>& values, double value, int64_t window) {
  values.push_back(value);
  while (static_cast<int64_t>(values.size()) > window) values.pop_front();
}

// Returns the elements of a list that have type T.
template <typename T>
std::vector<T> read(const Json& state, const char* key) {
  std::vector<T> values;
  if (!state.is_object() || !state.contains(key) || !state[key].is_array()) return values;
  for (const Json& value : state[key]) {
    try {
      values.push_back(value.get<T>());
    } catch (const Json::exception&) {
    }
  }
  return values;
}
std::deque<double> read_window(const Json& state, const char* key) {
  const auto values = read<double>(state, key);
  return {values.begin(), values.end()};
}
int64_t read_count(const Json& state, const char* key) {
  const bool is_there = state.is_object() && state.contains(key) && state[key].is_number_integer();
  return is_there ? state[key].get<int64_t>() : 0;
}

}  // namespace

config::Rows rows_of(const GuardOptions*) {
  using O = GuardOptions;
  return config::all_of<O>(
      {config::row(&O::policy,
                   {.name = "guard.policy",
                    .meaning = "What happens after a loss or gradient that is NaN, infinite or a "
                               "spike: the run stops, skips the batch, or goes back to the newest "
                               "checkpoint (docs/recovery.md).",
                    .choices = config::one_of({"stop", "skip", "rollback"})}),
       config::row(&O::spike, {.name = "guard.spike",
                               .meaning = "A loss or gradient norm above this many times the "
                                          "median of the last steps is a spike; 0: no value is.",
                               .range = config::at_least(0)}),
       config::row(&O::window, {.name = "guard.window",
                                .meaning = "Steps from which that median is taken. Until there "
                                           "are that many, nothing is a spike.",
                                .range = config::from_to(2, 1000000)}),
       config::row(&O::check_replicas_every,
                   {.name = "guard.check_replicas_every",
                    .meaning = "Steps between comparisons of all replicas' parameters, against "
                               "silent corruption; 0: never.",
                    .range = config::at_least(0)})});
}

void check(const GuardOptions& options) {
  config::check_values(options);
  if (options.spike != 0 && options.spike <= 1)
    refuse_option(
        fmt::format("guard.spike is {}, but a spike is above the median: 0 (off) or more than 1",
                    options.spike),
        "guard.spike=10");
}

Guard::Guard(GuardOptions options) : options_(std::move(options)) { check(options_); }

bool Guard::accepts(double loss, double gradient_norm) const {
  if (!std::isfinite(loss) || std::isnan(gradient_norm) || std::isinf(gradient_norm)) return false;
  if (options_.spike == 0) return true;
  const double usual_loss = median(losses_, options_.window),
               usual_norm = median(norms_, options_.window);
  const bool loss_spikes = usual_loss > 0 && loss > options_.spike * usual_loss;
  const bool norm_spikes = usual_norm > 0 && gradient_norm > options_.spike * usual_norm;
  return !loss_spikes && !norm_spikes;
}

std::string Guard::what_is_wrong(const Step& step) const {
  if (!step.nonfinite_ranks.empty())
    return fmt::format("the loss of step {} is NaN or infinite on rank {}", step.number,
                       fmt::join(step.nonfinite_ranks, ", "));
  if (step.nonfinite_gradients)
    return fmt::format("the gradients of step {} are NaN or infinite", step.number);
  const auto spike = [&](const char* what, double value, double usual) {
    return fmt::format("the {} of step {} is {:.4g}, {:.3g} times the median of the last {} steps",
                       what, step.number, value, value / usual, options_.window);
  };
  const double usual_loss = median(losses_, options_.window);
  if (usual_loss > 0 && step.loss > options_.spike * usual_loss)
    return spike("loss", step.loss, usual_loss);
  return spike("gradient norm", step.gradient_norm, median(norms_, options_.window));
}

GuardVerdict Guard::judge(const Step& step) {
  const bool finite = step.nonfinite_ranks.empty() && !step.nonfinite_gradients;
  if (step.nonfinite_ranks.empty() && step.nonfinite_gradients && step.overflow_is_expected)
    return {};
  if (finite && accepts(step.loss, step.gradient_norm)) {
    tripped_in_a_row_ = 0;
    if (options_.spike > 0) {
      keep(losses_, step.loss, options_.window);
      if (step.gradient_norm >= 0) keep(norms_, step.gradient_norm, options_.window);
    }
    return {};
  }
  const std::string what = what_is_wrong(step) + "; nothing was updated";
  if (options_.policy == "stop")
    return {GuardAction::stop, what, std::string(kRemedy) + ", or guard.policy=skip"};
  if (++tripped_in_a_row_ >= kMostInARow)
    return {GuardAction::stop,
            fmt::format("{}, for the {}th batch in a row", what, tripped_in_a_row_), kRemedy};
  const bool is_first =
      rolled_back_from_.emplace(step.position.epoch, step.position.consumed).second;
  const bool rolls_back = options_.policy == "rollback" && is_first;
  return {rolls_back ? GuardAction::rollback : GuardAction::skip, what, {}};
}

bool Guard::may_go_back_as_replicas_differ() {
  return options_.policy == "rollback" && ++times_differed_ <= kMostTimesDiffered;
}

Json Guard::state() const {
  return {{"losses", losses_},
          {"norms", norms_},
          {"tripped_in_a_row", tripped_in_a_row_},
          {"times_differed", times_differed_},
          {"rolled_back_from", rolled_back_from_}};
}

void Guard::load(const Json& state) {
  go_back(state);
  tripped_in_a_row_ = read_count(state, "tripped_in_a_row");
  times_differed_ = read_count(state, "times_differed");
  const auto batches = read<std::pair<int64_t, int64_t>>(state, "rolled_back_from");
  rolled_back_from_ = {batches.begin(), batches.end()};
}

void Guard::go_back(const Json& state) {
  losses_ = read_window(state, "losses");
  norms_ = read_window(state, "norms");
}

}  // namespace trireme
