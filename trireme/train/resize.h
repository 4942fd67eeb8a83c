// What becomes of the global batch and of the learning rate when the number of workers changes. No
// torch.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <string>

namespace trireme {

struct ResizeOptions {
  // keep: the global batch stays, and so does what is computed. Fewer workers take larger shares,
  // in more passes (micro-batches), so that no pass is larger than with `workers` workers. scale:
  // each worker's share stays.
  std::string batch = "keep";
  // With scale, the learning rate follows the global batch. linear: in proportion to it (Goyal et
  // al. 2017, "Accurate, large minibatch SGD", section 2.1); sqrt: to its root (Krizhevsky 2014,
  // "One weird trick", section 5; Granziol et al. 2022 for adaptive optimizers).
  std::string rate = "none";
  int64_t warmup_steps = 0;  // A higher rate is reached linearly over so many steps (Goyal et al.,
                             // section 2.2); a lower one holds at once.
  int workers = 0;  // For so many batch and rate were chosen; 0: with how many the run begins.
  bool operator==(const ResizeOptions&) const = default;
};
// Throws Error(invalid_argument) naming the option; `batch` is the global one with options.workers
// workers.
void check(const ResizeOptions& options, int64_t batch);

// One thread at a time; the same on every rank.
class Resize {
 public:
  Resize(ResizeOptions options, int64_t batch) : options_(std::move(options)), batch_(batch) {}

  // From `step` committed steps on there are so many workers. True if the batch or the rate is
  // another one than before.
  bool set_workers(int workers, int64_t step);

  int64_t batch() const;       // Global, with the present workers.
  double rate_target() const;  // The learning rate is multiplied by it once warmed up.
  double rate_factor(int64_t step) const;
  // Micro-batches that the largest share is cut into, where the run asks for `accumulate` with the
  // workers it was meant for.
  int passes(int accumulate) const;
  bool scales() const { return options_.batch == "scale"; }
  std::string describe() const;  // "a global batch of 96 (3 workers x 32), learning rate x 1.5
                                 // (linear, over 20 steps)"

  // For checkpoints and other members: a run goes on as it began, whatever the options say of
  // workers now.
  Json state() const;
  void load(const Json& state);

 private:
  ResizeOptions options_;
  int64_t batch_;
  int base_ = 0, workers_ = 0;  // 0: not yet known.
  double from_ = 1;             // The factor when the size changed.
  int64_t since_ = 0;           // Committed steps then.
};

}  // namespace trireme
