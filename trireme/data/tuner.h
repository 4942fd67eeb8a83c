// Chooses the threads of a loader and the batches that it holds ready, by what it measures. Pure:
// the same measurements give the same choices. No choice changes a batch.
//
// The tuner adds threads while the caller waits for them and they are always busy, and batches
// while the caller waits though they are not. It compares the time of a step before and after each
// change, and takes a change back that did not help. No torch.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace trireme::data {

struct LoaderSetting {
  int threads = 1;
  int ahead = 2;  // The batches that are ready or being loaded.
  bool operator==(const LoaderSetting&) const = default;
};

struct TunerLimits {
  bool threads_may_change = true, ahead_may_change = true;
  int most_threads = 64, most_ahead = 1024;
  double cores = 1;         // This loader's share of the host's cores.
  int compute_threads = 0;  // The threads among them that compute while no batch is missing.
  // The memory of the batches that are ready or being loaded. One of each always fits.
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
};

// Means over some steps of the caller, in seconds.
struct LoadWindow {
  double step = 0;      // From one batch to the next one.
  double waited = 0;    // The part of it without a batch.
  double load = 0;      // The time of one thread for a batch.
  double computed = 0;  // The part of `load` that needed a processor; the rest waited for files.
  int64_t free_bytes = std::numeric_limits<int64_t>::max();  // The memory that the host has left.
};

// The reason why a tuner does not change its setting.
enum class TunedBy {
  measuring,  // It still may.
  no_waits,   // The caller does not wait.
  cores,      // The cores that compute leaves are in use.
  memory,     // More batches do not fit.
  no_gain,    // A change was tried and did not help.
  fixed       // Nothing may change.
};
std::string_view to_string(TunedBy reason);

class Tuner {
 public:
  Tuner(LoaderSetting start, const TunerLimits& limits);

  // Takes the measurements with setting(), since the last change at the earliest. Returns true if
  // the setting has changed.
  bool take(const LoadWindow& window);

  // There is a batch of so many bytes. Returns true if the setting has changed, because batches of
  // this size would not fit.
  bool fit(int64_t batch_bytes);

  LoaderSetting setting() const { return now_; }
  // The memory that the batches leave; if nothing may change, it has no limit.
  int64_t spare_bytes() const;
  // It has stopped trying changes. It begins again if the caller waits later on.
  bool is_settled() const { return reason_ != TunedBy::measuring; }
  TunedBy reason() const { return reason_; }

 private:
  enum class Change { threads, ahead };
  // A change whose gain is not known yet.
  struct Trial {
    Change change;
    LoaderSetting before;
    double step, waited;          // Before it.
    int gains = 0, failures = 0;  // Windows with it.
  };
  // A change that did not help is not tried again for some windows, each time for longer.
  struct Rest {
    int windows = 0, next = 8;
    void begin();
  };

  bool judge(const LoadWindow& window);
  bool look(const LoadWindow& window);
  bool shrink_if_idle(const LoadWindow& window);
  int most_threads(const LoadWindow& window) const;
  LoaderSetting with_threads(int threads) const;
  bool fits(const LoaderSetting& setting, int64_t budget) const;
  LoaderSetting fitted(LoaderSetting setting, int64_t budget) const;
  int64_t budget_for_growth(const LoadWindow& window) const;
  bool begin(Change change, const LoaderSetting& to, const LoadWindow& window);

  const TunerLimits limits_;
  LoaderSetting now_;
  int64_t batch_bytes_ = 0;  // The size of the largest batch.
  std::optional<Trial> trial_;
  Rest rest_of_threads_, rest_of_ahead_;
  int idle_windows_ = 0, patience_ = 16;
  TunedBy reason_ = TunedBy::measuring;
};

}  // namespace trireme::data
