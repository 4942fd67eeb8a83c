// Dynamic loss scaling for float16, whose small gradients would vanish. Losses are multiplied
// before backward, and gradients are divided after it (Micikevicius et al. 2018, "Mixed precision
// training", section 3.2). Numbers and rules are torch.amp.GradScaler's. No torch.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>

namespace trireme {

struct GradScalerOptions {
  double initial = 65536;
  double growth = 2, backoff = 0.5;
  // The scale grows after so many steps in a row without overflow.
  int64_t growth_interval = 2000;
};

// Every replica has a scaler. All scalers take the same path, because all replicas know the same
// outcome of a step.
class GradScaler {
 public:
  // Throws Error(invalid_argument) naming the option.
  explicit GradScaler(GradScalerOptions options = {});
  double scale() const { return scale_; }
  // Call it after each step. `overflow` says that reduced gradients were NaN or infinite, and
  // nothing was updated. Throws Error(internal) if even a scale of 2^-16 overflows: then the scale
  // is not the cause.
  void update(bool overflow);

  Json state() const;
  void load(const Json& state);

 private:
  GradScalerOptions options_;
  double scale_;
  int64_t steps_since_change_ = 0;
};

}  // namespace trireme
