#include <fmt/format.h>
#include <trireme/images/codecs.h>
#include <algorithm>
#include <cstring>

#include <webp/decode.h>

namespace trireme::images {
namespace {

const uint8_t* start_of(Bytes file) { return reinterpret_cast<const uint8_t*>(file.data()); }

std::string_view cause_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_NOT_ENOUGH_DATA: return "it is cut off";
    case VP8_STATUS_OUT_OF_MEMORY: return "there is no memory for its pixels";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "it uses a feature that libwebp does not know";
    default: return "its bytes are not those of a WebP";
  }
}

// The columns and rows that are decoded: the crop with a margin of even places, because the smooth
// upsampling of colours looks at the neighbours of a pixel.
Crop with_margin(const Request& request) {
  constexpr int64_t kMargin = 2;
  const Crop& crop = request.crop;
  const int64_t top = std::max<int64_t>(crop.top - kMargin, 0) & ~int64_t{1};
  const int64_t left = std::max<int64_t>(crop.left - kMargin, 0) & ~int64_t{1};
  const int64_t bottom = std::min(crop.top + crop.height + kMargin, request.header.height);
  const int64_t right = std::min(crop.left + crop.width + kMargin, request.header.width);
  return {top, left, bottom - top, right - left};
}

}  // namespace

bool is_webp(Bytes file) {
  return file.size() >= 12 && big_endian(file, 0, 4) == 0x52494646 &&
         big_endian(file, 8, 4) == 0x57454250;
}

Header webp_header(Bytes file) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(start_of(file), file.size(), &features);
  if (status != VP8_STATUS_OK) throw_corrupt("webp", cause_of(status));
  if (features.has_animation)
    throw_unsupported("webp", "is an animation, which is not decoded", "store one of its frames");
  return {.format = "webp",
          .height = features.height,
          .width = features.width,
          .channels = features.has_alpha ? 4 : 3};
}

std::string webp_version() { return fmt::format("libwebp {:x}", WebPGetDecoderVersion()); }

void decode_webp(const Request& request, Image& into) {
  static thread_local Image decoded;
  const Crop area = request.wants_all() ? request.crop : with_margin(request);
  const bool apart = !request.wants_all() || request.channels != 3;
  Image& target = apart ? decoded : into;
  target.reshape(area.height, area.width, 3);

  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config))
    throw Error(ErrorCode::internal, "images", "libwebp does not start");
  if (!request.wants_all()) {
    config.options.use_cropping = 1;
    config.options.crop_top = static_cast<int>(area.top);
    config.options.crop_left = static_cast<int>(area.left);
    config.options.crop_height = static_cast<int>(area.height);
    config.options.crop_width = static_cast<int>(area.width);
  }
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = target.pixels.data();
  config.output.u.RGBA.stride = static_cast<int>(target.row_bytes());
  config.output.u.RGBA.size = target.pixels.size();
  const VP8StatusCode status = WebPDecode(start_of(request.file), request.file.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) throw_corrupt("webp", cause_of(status));
  if (!apart) return;

  const Crop& crop = request.crop;
  into.reshape(crop.height, crop.width, request.channels);
  for (int64_t y = 0; y < crop.height; ++y) {
    const uint8_t* from = decoded.row(crop.top - area.top + y) + (crop.left - area.left) * 3;
    uint8_t* out = into.row(y);
    if (request.channels == 3) {
      std::memcpy(out, from, static_cast<size_t>(into.row_bytes()));
      continue;
    }
    for (int64_t x = 0; x < crop.width; ++x) out[x] = grey_of(from + 3 * x);
  }
}

}  // namespace trireme::images
