#include <ATen/autocast_mode.h>
#include <trireme/tensor/autocast.h>

namespace trireme {

Autocast::Autocast(std::optional<at::ScalarType> type) : changes_(type.has_value()) {
  if (!changes_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(at::kCPU);
  previous_type_ = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, *type);
  // LibTorch has one cache of converted weights for all threads. Replicas clear it at different
  // times, so each would clear the weights of the others.
  was_caching_ = at::autocast::is_autocast_cache_enabled();
  at::autocast::set_autocast_cache_enabled(false);
}

Autocast::~Autocast() {
  if (!changes_) return;
  at::autocast::set_autocast_cache_enabled(was_caching_);
  at::autocast::set_autocast_enabled(at::kCPU, was_enabled_);
  at::autocast::set_autocast_dtype(at::kCPU, previous_type_);
}

}  // namespace trireme
