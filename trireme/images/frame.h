// Parts of an image that reach beyond its edges.
#pragma once
#include <trireme/images/image.h>
#include <array>
#include <cstdint>

namespace trireme::images {

// The pixels around an image, by torchvision's words for a padding mode.
enum class FrameMode : uint8_t {
  constant,   // A colour.
  edge,       // The nearest pixel of the image.
  reflect,    // The image mirrored, without a second copy of its outermost pixels.
  symmetric,  // The image mirrored, with one.
};

struct Frame {
  FrameMode mode = FrameMode::constant;
  // The byte of each channel for a constant frame. Channels behind the fourth have its byte.
  std::array<uint8_t, 4> fill{};
};

// Copies a part of `from`, which must be another image than `into`. The part may lie outside the
// image, where it has the pixels of the frame. A mirrored frame that is wider than the image is
// mirrored again. Throws Error(invalid_argument) if the image or the part has no pixels.
void crop_with_frame(const Image& from, const Crop& part, const Frame& frame, Image& into);

}  // namespace trireme::images
