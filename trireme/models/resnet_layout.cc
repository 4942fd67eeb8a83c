#include <trireme/models/resnet_layout.h>
#include <algorithm>

namespace trireme::models {

ResnetLayout resnet_layout(std::string_view name) {
  if (name == "resnet18") return {{2, 2, 2, 2}, false};
  if (name == "resnet34") return {{3, 4, 6, 3}, false};
  if (name == "resnet101") return {{3, 4, 23, 3}, true};
  if (name == "resnet152") return {{3, 8, 36, 3}, true};
  return {{3, 4, 6, 3}, true};
}

bool has_small_stem(const InputSpec& input) {
  constexpr int64_t kSmall = 64;
  return std::max(input.shape[1], input.shape[2]) <= kSmall;
}

}  // namespace trireme::models
