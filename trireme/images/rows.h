// The last step of an image: from its bytes to normalised numbers in the memory of a batch.
#pragma once
#include <trireme/images/image.h>
#include <trireme/images/regions.h>
#include <array>
#include <cstdint>

namespace trireme::images {

struct RowOptions {
  bool flip_horizontally = false, flip_vertically = false;
  // For each channel the number becomes (byte / 255 - mean) / std.
  std::array<float, 4> mean{};
  std::array<float, 4> std{1, 1, 1, 1};
  bool channels_last = false;  // Height, width, channels instead of channels, height, width.
};

// Bytes that lie channel by channel: [channels, height, width].
struct Planes {
  const uint8_t* pixels = nullptr;  // Null: there are none.
  int64_t channels = 0, height = 0, width = 0;
};

// Writes height * width * channels numbers in one pass. The bits are equal on all processors. They
// may differ from those of a division by a unit in the last place. A bfloat16 is the float32,
// rounded to the nearest, ties to even.
// Throws Error(invalid_argument) for a std that is not positive, or more than four channels,
// before anything is written.
void write_row(const Image& image, const RowOptions& options, float* out);
void write_row(const Image& image, const RowOptions& options, uint16_t* out_bfloat16);
// The same bits for planes, which stay planes: without channels_last.
void write_row(const Planes& planes, const RowOptions& options, float* out);
void write_row(const Planes& planes, const RowOptions& options, uint16_t* out_bfloat16);

// Writes the values or the noise of a box into a finished row of planes. The noise is the same for
// the same box and noise_bits, wherever the box lies. Channels behind the fourth have its value.
// Throws Error(invalid_argument) for a box outside the image; it may have no pixel.
void write_erased(const EraseBox& erased, int64_t channels, Size size, float* row);
void write_erased(const EraseBox& erased, int64_t channels, Size size, uint16_t* row_bfloat16);

}  // namespace trireme::images
