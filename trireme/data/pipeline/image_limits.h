// The limits of an image that a stage decodes or scales. No torch.
#pragma once
#include <trireme/images/decode.h>
#include <algorithm>
#include <cstdint>

namespace trireme::data {

// `bytes` is the most memory of one image: height times width times channels. If it leaves fewer
// pixels than any image may have, messages say how to raise it.
inline images::DecodeLimits image_limits(int64_t bytes, int64_t channels) {
  images::DecodeLimits limits{.more_pixels = "scale the image down"};
  const int64_t pixels = bytes / std::max<int64_t>(1, channels);
  if (pixels >= limits.pixels) return limits;
  limits.pixels = pixels;
  limits.more_pixels = "raise data.memory_bytes, of which an image may take a quarter";
  return limits;
}

}  // namespace trireme::data
