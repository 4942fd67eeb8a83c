// Decides the global batch and the learning rate when the number of workers changes. No torch.
#pragma once
#include <trireme/base/json.h>
#include <trireme/config/rows.h>
#include <cstdint>
#include <string>

namespace trireme {

struct ResizeOptions {
  // keep: the global batch stays, and so do the results. Fewer workers take larger shares in more
  // passes (micro-batches), so that no pass is larger than with `workers` workers. scale: each
  // worker's share stays.
  std::string batch = "keep";
  // With scale, the learning rate follows the global batch. linear: in proportion to it (Goyal
  // et al. 2017, "Accurate, large minibatch SGD", section 2.1). sqrt: in proportion to its
  // square root (Krizhevsky 2014, "One weird trick", section 5; Granziol et al. 2022 for
  // adaptive optimizers).
  std::string rate = "none";
  // The rate rises linearly to a higher value over this number of steps (Goyal et al., section
  // 2.2). A lower rate applies at once.
  int64_t warmup_steps = 0;
  // The number of workers for which batch and rate were chosen; 0: the number with
  // which the run begins.
  int workers = 0;
  bool operator==(const ResizeOptions&) const = default;
};
config::Rows rows_of(const ResizeOptions*);
// Throws Error(invalid_argument) that names the option. `batch` is the global batch with
// options.workers workers.
void check(const ResizeOptions& options, int64_t batch);

// One thread at a time. The results are the same on every rank.
class Resize {
 public:
  Resize(ResizeOptions options, int64_t batch) : options_(std::move(options)), batch_(batch) {}

  // Sets the number of workers after `step` committed steps. Returns true if the
  // batch or the rate changes.
  bool set_workers(int workers, int64_t step);

  int64_t batch() const;  // The global batch with the present workers.
  // The factor for the learning rate once the warm-up is over.
  double rate_target() const;
  double rate_factor(int64_t step) const;
  // Returns the number of micro-batches into which the largest share is cut. `accumulate` is the
  // number that the run asks for with the workers that it was meant for.
  int passes(int accumulate) const;
  bool scales() const { return options_.batch == "scale"; }
  // "a global batch of 96 (3 workers x 32), learning rate x 1.5 (linear, over 20 steps)"
  std::string describe() const;

  // The state for checkpoints and other members. A run continues as it began, whatever number of
  // workers the options name now.
  Json state() const;
  void load(const Json& state);

 private:
  ResizeOptions options_;
  int64_t batch_;
  int base_ = 0, workers_ = 0;  // 0: not yet known.
  double from_ = 1;             // The factor at the time when the size changed.
  int64_t since_ = 0;           // The number of committed steps at that time.
};

}  // namespace trireme
