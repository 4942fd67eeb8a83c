#include <trireme/images/frame.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <cstring>

namespace trireme::images {
namespace {

// The row or column of an image that stands at place `i`, which may lie before or behind it.
int64_t place_in_image(int64_t i, int64_t size, FrameMode mode) {
  if (i >= 0 && i < size) return i;
  if (mode == FrameMode::edge) return std::clamp<int64_t>(i, 0, size - 1);
  // The image and its mirrored copy take turns.
  const int64_t repeated = mode == FrameMode::symmetric ? 1 : 0;
  const int64_t period = std::max<int64_t>(1, 2 * size - 2 + 2 * repeated);
  const int64_t place = (i % period + period) % period;
  return place < size ? place : period - repeated - place;
}

void fill_all(Image& image, const std::array<uint8_t, 4>& fill) {
  uint8_t* const first = image.row(0);
  for (int64_t x = 0; x < image.width; ++x)
    for (int64_t c = 0; c < image.channels; ++c)
      first[x * image.channels + c] = fill[static_cast<size_t>(std::min<int64_t>(c, 3))];
  for (int64_t y = 1; y < image.height; ++y)
    std::memcpy(image.row(y), first, static_cast<size_t>(image.row_bytes()));
}

}  // namespace

void crop_with_frame(const Image& from, const Crop& part, const Frame& frame, Image& into) {
  if (from.height < 1 || from.width < 1 || part.height < 1 || part.width < 1)
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("a crop of {} is cut out of an image of {}x{} pixels", describe(part),
                            from.height, from.width),
                "an image and a crop with pixels");
  into.reshape(part.height, part.width, from.channels);
  const bool is_constant = frame.mode == FrameMode::constant;
  if (is_constant) fill_all(into, frame.fill);
  // The columns of the part that lie in the image.
  const int64_t left = std::clamp<int64_t>(-part.left, 0, part.width);
  const int64_t right = std::clamp<int64_t>(from.width - part.left, left, part.width);
  const auto pixel = static_cast<size_t>(from.channels);
  for (int64_t y = 0; y < part.height; ++y) {
    const int64_t row = part.top + y;
    if (is_constant && (row < 0 || row >= from.height)) continue;
    const uint8_t* const source = from.row(place_in_image(row, from.height, frame.mode));
    uint8_t* const out = into.row(y);
    if (right > left)
      std::memcpy(out + left * from.channels, source + (part.left + left) * from.channels,
                  static_cast<size_t>(right - left) * pixel);
    if (is_constant) continue;
    for (int64_t x = 0; x < part.width; ++x) {
      if (x == left) x = right;
      if (x == part.width) break;
      const int64_t column = place_in_image(part.left + x, from.width, frame.mode);
      std::memcpy(out + x * from.channels, source + column * from.channels, pixel);
    }
  }
}

}  // namespace trireme::images
