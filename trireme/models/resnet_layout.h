// The numbers that define a residual network, for its shapes and its module; no torch. They are
// those of He et al. 2016, "Deep residual learning for image recognition", table 1.
#pragma once
#include <trireme/models/shapes.h>
#include <array>

namespace trireme::models {

struct ResnetLayout {
  static constexpr int kStages = 4;
  std::array<int64_t, kStages> blocks{};
  bool bottleneck = false;  // Three convolutions per block (1x1, 3x3, 1x1) instead of two (3x3).

  int64_t width(int stage) const { return int64_t{64} << stage; }
  int64_t outputs(int stage) const { return width(stage) * (bottleneck ? 4 : 1); }
  int64_t stride(int stage, int64_t block) const { return stage > 0 && block == 0 ? 2 : 1; }
  // If a block changes the size or the number of channels, a 1x1 convolution does the same on its
  // shortcut (option B of section 4.1).
  bool has_projection(int stage, int64_t block) const {
    return block == 0 && (stage > 0 || bottleneck);
  }
};

ResnetLayout resnet_layout(std::string_view name);  // resnet18 to resnet152.

// Images of up to 64x64 start with a 3x3 convolution. The usual 7x7 convolution of stride 2 and
// its max-pooling would leave almost nothing of them.
bool has_small_stem(const InputSpec& input);

}  // namespace trireme::models
