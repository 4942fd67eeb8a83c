// Mixed precision: chosen operations of forward compute in 16 bits while parameters, and what is
// sensitive, stay float32.
#pragma once
#include <ATen/core/Tensor.h>
#include <optional>

namespace trireme {

// While one lives, the calling thread's CPU operations run as under torch.autocast("cpu", type);
// nothing changes without a type. Forward and loss belong inside, backward outside. Objects nest.
class Autocast {
 public:
  explicit Autocast(std::optional<at::ScalarType> type);  // at::kBFloat16 or at::kHalf
  ~Autocast();                                            // On the thread that made it.
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool changes_;
  bool was_enabled_ = false, was_caching_ = true;
  at::ScalarType previous_type_ = at::kBFloat16;
};

}  // namespace trireme
