// An image as bytes, and parts of it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::images {

struct Size {
  int64_t height = 0, width = 0;
  bool operator==(const Size&) const = default;
};

// A part of an image, in pixels of the image.
struct Crop {
  int64_t top = 0, left = 0, height = 0, width = 0;
  bool operator==(const Crop&) const = default;
};

// One thread at a time uses an image. It is filled again and again: its memory is kept, so a
// pipeline allocates nothing once its images have had their largest size.
struct Image {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;  // height rows of width pixels of `channels` bytes, without gaps.

  Size size() const { return {height, width}; }
  int64_t row_bytes() const { return width * channels; }
  uint8_t* row(int64_t y) { return pixels.data() + y * row_bytes(); }
  const uint8_t* row(int64_t y) const { return pixels.data() + y * row_bytes(); }
  // Gives the image this form. The values of its pixels are undefined afterwards.
  void reshape(int64_t new_height, int64_t new_width, int64_t new_channels);
};

// Throws Error(invalid_argument) unless `part` lies in an image of this size and is not empty.
void check_crop(const Crop& part, Size of_image);

// Copies a part of `from`, which must be another image than `into`.
void crop(const Image& from, const Crop& part, Image& into);

std::string describe(const Crop& part);  // "224x200 pixels at row 3, column 5"

}  // namespace trireme::images
