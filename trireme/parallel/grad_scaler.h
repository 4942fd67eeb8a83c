// Dynamic loss scaling for float16, whose small gradients would vanish: losses are multiplied
// before backward, gradients divided after it (Micikevicius et al. 2018, "Mixed precision
// training", section 3.2). Numbers and rules are torch.amp.GradScaler's. No torch.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>

namespace trireme {

struct GradScalerOptions {
  double initial = 65536;
  double growth = 2, backoff = 0.5;
  int64_t growth_interval = 2000;  // Steps in a row without overflow after which the scale grows.
};

// Every replica has one, and all take the same path, since the outcome of a step is known to all
// alike.
class GradScaler {
 public:
  explicit GradScaler(
      GradScalerOptions options = {});  // Throws Error(invalid_argument) naming the option.
  double scale() const { return scale_; }
  // After each step; `overflow`: reduced gradients were NaN or infinite, and nothing was updated.
  // Throws Error(internal) where even a scale of 2^-16 is too large: then it is not the scale.
  void update(bool overflow);

  Json state() const;
  void load(const Json& state);

 private:
  GradScalerOptions options_;
  double scale_;
  int64_t steps_since_change_ = 0;
};

}  // namespace trireme
