#include <trireme/images/image.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <cstring>

namespace trireme::images {

void Image::reshape(int64_t new_height, int64_t new_width, int64_t new_channels) {
  height = new_height;
  width = new_width;
  channels = new_channels;
  pixels.resize(static_cast<size_t>(height * width * channels));
}

std::string describe(const Crop& part) {
  return fmt::format("{}x{} pixels at row {}, column {}", part.height, part.width, part.top,
                     part.left);
}

void check_crop(const Crop& part, Size of_image) {
  // Sizes are compared by differences, which cannot overflow.
  if (part.top < 0 || part.left < 0 || part.height < 1 || part.width < 1 ||
      part.height > of_image.height || part.top > of_image.height - part.height ||
      part.width > of_image.width || part.left > of_image.width - part.width)
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("a crop of {} is outside the image, which has {}x{} pixels",
                            describe(part), of_image.height, of_image.width),
                "a crop inside the image");
}

void crop(const Image& from, const Crop& part, Image& into) {
  check_crop(part, from.size());
  into.reshape(part.height, part.width, from.channels);
  const auto bytes = static_cast<size_t>(into.row_bytes());
  for (int64_t y = 0; y < part.height; ++y)
    std::memcpy(into.row(y), from.row(part.top + y) + part.left * from.channels, bytes);
}

}  // namespace trireme::images
