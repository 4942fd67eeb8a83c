// Mixed precision: chosen operations of forward compute in 16 bits. Parameters and sensitive
// operations stay float32.
#pragma once
#include <ATen/core/Tensor.h>
#include <optional>

namespace trireme {

// While an Autocast lives, the calling thread's CPU operations run as under
// torch.autocast("cpu", type). Without a type nothing changes. Forward and loss belong inside,
// backward outside. Objects nest.
class Autocast {
 public:
  // `type` is at::kBFloat16 or at::kHalf.
  explicit Autocast(std::optional<at::ScalarType> type);
  // Runs on the thread that made the object.
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool changes_;
  bool was_enabled_ = false, was_caching_ = true;
  at::ScalarType previous_type_ = at::kBFloat16;
};

}  // namespace trireme
