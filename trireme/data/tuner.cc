#include <trireme/data/tuner.h>
#include <algorithm>
#include <cmath>

namespace trireme::data {
namespace {

constexpr double kContent = 0.01;  // The share of waits below which nothing is changed.
constexpr double kLargeGain = 0.25;
constexpr int kDecisive = 2;
constexpr double kGain = 0.03;  // A smaller gain does not keep a change.
constexpr double kAlwaysBusy = 0.75;
constexpr double kOfCore = 0.15;  // A smaller part of a core is not worth a thread.
constexpr double kMostlyWaiting = 0.5;
constexpr int kMostThreadsOfACore = 4;
constexpr int kMostPatience = 256;

}  // namespace

std::string_view to_string(TunedBy reason) {
  switch (reason) {
    case TunedBy::measuring: return "measuring";
    case TunedBy::no_waits: return "no_waits";
    case TunedBy::cores: return "cores";
    case TunedBy::memory: return "memory";
    case TunedBy::no_gain: return "no_gain";
    case TunedBy::fixed: return "fixed";
  }
  return "";
}

void Tuner::Rest::begin() {
  windows = next;
  next = std::min(2 * next, kMostPatience);
}

Tuner::Tuner(LoaderSetting start, const TunerLimits& limits) : limits_(limits), now_(start) {
  if (!limits_.threads_may_change && !limits_.ahead_may_change) reason_ = TunedBy::fixed;
}

bool Tuner::take(const LoadWindow& window) {
  if (reason_ == TunedBy::fixed || !(window.step > 0)) return false;
  for (Rest* rest : {&rest_of_threads_, &rest_of_ahead_})
    rest->windows = std::max(0, rest->windows - 1);
  return trial_ ? judge(window) : look(window);
}

bool Tuner::fit(int64_t batch_bytes) {
  if (reason_ == TunedBy::fixed || batch_bytes <= batch_bytes_) return false;
  batch_bytes_ = batch_bytes;
  const LoaderSetting smaller = fitted(now_, limits_.memory_bytes);
  if (smaller == now_) return false;
  now_ = smaller;
  trial_.reset();
  return true;
}

// Others on the machine may be the reason for a good window or a bad one, so two of a kind decide,
// unless the gain is large.
bool Tuner::judge(const LoadWindow& window) {
  const bool is_faster = window.step <= trial_->step * (1 - kGain);
  // The other ranks may set the pace.
  const bool waits_less =
      window.step <= trial_->step * (1 + kGain / 2) && window.waited <= trial_->waited / 2;
  ++(is_faster || waits_less ? trial_->gains : trial_->failures);
  if (trial_->gains == kDecisive || window.step <= trial_->step * (1 - kLargeGain)) {
    trial_.reset();
    return look(window);
  }
  if (trial_->failures < kDecisive) return false;
  now_ = trial_->before;
  (trial_->change == Change::threads ? rest_of_threads_ : rest_of_ahead_).begin();
  trial_.reset();
  return true;
}

bool Tuner::look(const LoadWindow& window) {
  const double share = window.waited / window.step;
  if (share < kContent) {
    reason_ = TunedBy::no_waits;
    return shrink_if_idle(window);
  }
  idle_windows_ = 0;
  const bool are_busy = window.load >= kAlwaysBusy * now_.threads * window.step;
  const int64_t budget = budget_for_growth(window);
  TunedBy reason = TunedBy::no_gain;
  if (limits_.threads_may_change && are_busy && rest_of_threads_.windows == 0) {
    const double own = window.step - window.waited;
    // The threads that keep pace with the caller, but never more than twice as many as now.
    const double wanted = own > 0 ? std::ceil(1.05 * window.load / own) : 1e9;
    const int more =
        std::max(now_.threads + 1, static_cast<int>(std::min<double>(wanted, 2.0 * now_.threads)));
    const int threads = std::min(more, most_threads(window));
    if (threads > now_.threads) {
      const LoaderSetting to = fitted(with_threads(threads), budget);
      if (to.threads > now_.threads) return begin(Change::threads, to, window);
      reason = TunedBy::memory;
    } else {
      reason = TunedBy::cores;
    }
  }
  if (limits_.ahead_may_change && rest_of_ahead_.windows == 0 && now_.ahead < limits_.most_ahead) {
    LoaderSetting to = now_;
    to.ahead = std::min(2 * std::max(now_.ahead, now_.threads), limits_.most_ahead);
    to = fitted(to, budget);
    if (to.ahead > now_.ahead) return begin(Change::ahead, to, window);
    if (reason == TunedBy::no_gain) reason = TunedBy::memory;
  }
  reason_ = reason;
  return false;
}

bool Tuner::begin(Change change, const LoaderSetting& to, const LoadWindow& window) {
  trial_ = Trial{change, now_, window.step, window.waited};
  now_ = to;
  reason_ = TunedBy::measuring;
  return true;
}

// Threads that sleep cost nothing, but the batches that they hold do.
bool Tuner::shrink_if_idle(const LoadWindow& window) {
  const bool is_idle = limits_.threads_may_change && now_.threads > 1 &&
                       2 * window.load < (now_.threads - 1) * window.step;
  idle_windows_ = is_idle ? idle_windows_ + 1 : 0;
  if (idle_windows_ < patience_) return false;
  idle_windows_ = 0;
  patience_ = std::min(2 * patience_, kMostPatience);
  now_.threads -= 1;
  if (limits_.ahead_may_change) now_.ahead = std::min(now_.ahead, 2 * now_.threads);
  return true;
}

// Threads that wait for files need no core.
int Tuner::most_threads(const LoadWindow& window) const {
  const double share = window.waited / window.step;
  const double left = limits_.cores - limits_.compute_threads * (1 - share);
  double threads = std::max(1.0, std::ceil(left - kOfCore));
  const double computing = window.load > 0 ? window.computed / window.load : 1;
  if (computing < kMostlyWaiting)
    threads *= std::min<double>(kMostThreadsOfACore, 1 / std::max(computing, 0.01));
  return std::min(static_cast<int>(threads), limits_.most_threads);
}

LoaderSetting Tuner::with_threads(int threads) const {
  LoaderSetting setting{threads, now_.ahead};
  if (limits_.ahead_may_change)
    setting.ahead = std::min(std::max(now_.ahead, 2 * threads), limits_.most_ahead);
  return setting;
}

// A thread needs memory beside the batch that it loads, such as to convert it.
bool Tuner::fits(const LoaderSetting& setting, int64_t budget) const {
  const int64_t batches = setting.threads + std::max(setting.threads, setting.ahead);
  return batch_bytes_ == 0 || batches <= budget / batch_bytes_;
}

LoaderSetting Tuner::fitted(LoaderSetting setting, int64_t budget) const {
  const int least_ahead = limits_.ahead_may_change ? 1 : setting.ahead;
  const int least_threads = limits_.threads_may_change ? 1 : setting.threads;
  while (!fits(setting, budget)) {
    if (setting.ahead > std::max(setting.threads, least_ahead))
      --setting.ahead;
    else if (setting.threads > least_threads)
      --setting.threads;
    else
      break;
  }
  return setting;
}

int64_t Tuner::spare_bytes() const {
  if (reason_ == TunedBy::fixed) return std::numeric_limits<int64_t>::max();
  const int64_t batches = now_.threads + std::max(now_.threads, now_.ahead);
  return std::max<int64_t>(0, limits_.memory_bytes - batches * batch_bytes_);
}

// The last memory of the host is left to others.
int64_t Tuner::budget_for_growth(const LoadWindow& window) const {
  const int64_t held = (now_.threads + std::max(now_.threads, now_.ahead)) * batch_bytes_;
  const int64_t more = window.free_bytes / 2;
  if (more > std::numeric_limits<int64_t>::max() - held) return limits_.memory_bytes;
  return std::min(limits_.memory_bytes, held + more);
}

}  // namespace trireme::data
