// Decodes JPEG, PNG and WebP files that lie in memory.
//
// The pixels are those of Pillow and torchvision: libjpeg's accurate transform and smooth
// upsampling of colours; no gamma and no colour profile; alpha is dropped, not composited; 16 bits
// become the upper 8. As in torchvision, the orientation that a camera wrote into EXIF is ignored.
// Grey becomes three equal channels, and colours become grey by ITU-R 601 (a JPEG that stores
// luma gives it as it is). JPEGs of CMYK and YCCK inks are converted; those of Adobe are inverted.
//
// Any thread may call. Each thread keeps a decoder, so that no image sets one up.
#pragma once
#include <trireme/images/image.h>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme::images {

// The most that a file may ask for. Headers are compared with it before memory is allocated.
struct DecodeLimits {
  int64_t pixels = int64_t{1} << 28;  // Height times width.
  int jpeg_scans = 500;               // A progressive file with many scans costs much time.
  int png_chunks = 1000;              // Chunks that hold no pixels.
  // The remedy for an image with more pixels, besides leaving it out.
  std::string_view more_pixels = "raise the limit on pixels if you trust the file";
};

struct Header {
  std::string_view format;  // "jpeg", "png" or "webp".
  int64_t height = 0, width = 0;
  int64_t channels = 0;  // As stored, with alpha: 1 to 4. A palette counts as 3.
};

// Reads no pixels and allocates nothing. Throws as decode() does.
Header read_header(std::span<const std::byte> file, const DecodeLimits& limits);

// Decodes `file` to `channels` (3: RGB, 1: grey), or only `crop` of it. The result of a crop is
// that part of the whole image, bit by bit. With `least` a JPEG is scaled down while it is
// decoded: by 2, 4 or 8, as long as the crop (or image) keeps at least this size. Its edges then
// lie at the nearest scaled pixels that contain the crop. Other formats keep their size.
//
// Throws Error(corrupt) for a file that is damaged or cut off; also where the damage lies outside
// the crop, if the file's structure shows it. Throws Error(unsupported) for other formats and for
// animations, and Error(invalid_argument) for a wrong crop or a file beyond the limits. `into` is
// undefined after an error. Messages name the cause; the caller knows the file.
void decode(std::span<const std::byte> file, int channels, const DecodeLimits& limits, Image& into,
            std::optional<Crop> crop = {}, std::optional<Size> least = {});

// Another text where another version of Trireme, libjpeg, libpng or libwebp may give other pixels.
std::string versions_of_decoders();

}  // namespace trireme::images
