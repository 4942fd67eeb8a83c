// The last step of an image: from its bytes to normalised numbers in the memory of a batch.
#pragma once
#include <trireme/images/image.h>
#include <trireme/images/regions.h>
#include <array>
#include <cstdint>
#include <optional>

namespace trireme::images {

struct RowOptions {
  bool flip_horizontally = false, flip_vertically = false;
  // For each channel the number becomes (byte / 255 - mean) / std.
  std::array<float, 4> mean{};
  std::array<float, 4> std{1, 1, 1, 1};
  bool channels_last = false;     // Height, width, channels instead of channels, height, width.
  std::optional<EraseBox> erase;  // In the flipped image.
};

// Bytes that lie channel by channel: [channels, height, width].
struct Planes {
  const uint8_t* pixels = nullptr;  // Null: there are none.
  int64_t channels = 0, height = 0, width = 0;
};

// Writes height * width * channels numbers in one pass. The bits are equal on all processors. They
// may differ from those of a division by a unit in the last place. A bfloat16 is the float32,
// rounded to the nearest, ties to even.
// Throws Error(invalid_argument) for a std that is not positive, more than four channels, or a box
// to erase outside the image, before anything is written.
void write_row(const Image& image, const RowOptions& options, float* out);
void write_row(const Image& image, const RowOptions& options, uint16_t* out_bfloat16);
// The same bits for planes, which stay planes: without channels_last and erase.
void write_row(const Planes& planes, const RowOptions& options, float* out);
void write_row(const Planes& planes, const RowOptions& options, uint16_t* out_bfloat16);
// The bits of a finite number as a bfloat16 of such a row.
uint16_t bfloat16_of(float number);

}  // namespace trireme::images
