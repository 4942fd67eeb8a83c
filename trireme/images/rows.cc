#include <trireme/images/rows.h>

#include <fmt/format.h>
#include <trireme/base/clones.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <bit>
#include <cmath>

namespace trireme::images {
namespace {

constexpr int64_t kPart = 512;  // Pixels at a time; their planes stay in the nearest cache.
constexpr int kMostChannels = 4;

// byte * factor + offset is the normalised number.
struct Scale {
  float factor[kMostChannels], offset[kMostChannels];
};

TRIREME_INLINE void store(float value, float* out) { *out = value; }
TRIREME_INLINE void store(float value, uint16_t* out) {
  const auto bits = std::bit_cast<uint32_t>(value);
  *out = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Bytes of one channel become consecutive numbers.
template <typename Number>
TRIREME_INLINE void scale_plane(const uint8_t* __restrict bytes, int64_t count, float factor,
                                float offset, Number* __restrict out) {
  for (int64_t i = 0; i < count; ++i)
    store(static_cast<float>(bytes[i]) * factor + offset, out + i);
}

// Gives pixels [0, count) of `from` to three planes.
TRIREME_INLINE void divide(const uint8_t* __restrict from, int64_t count, uint8_t* __restrict a,
                           uint8_t* __restrict b, uint8_t* __restrict c) {
  for (int64_t i = 0; i < count; ++i) {
    a[i] = from[3 * i];
    b[i] = from[3 * i + 1];
    c[i] = from[3 * i + 2];
  }
}

TRIREME_INLINE void turn(const uint8_t* __restrict from, int64_t count, uint8_t* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = from[count - 1 - i];
}

// One row of an image with any number of channels, to planes that are `plane` numbers apart.
template <typename Number>
TRIREME_INLINE void row_to_planes(const uint8_t* row, int64_t width, int64_t channels, bool flip,
                                  const Scale& scale, int64_t plane, Number* out) {
  alignas(64) uint8_t planes[kMostChannels][kPart], turned[kPart];
  for (int64_t begin = 0; begin < width; begin += kPart) {
    const int64_t count = std::min(kPart, width - begin);
    const uint8_t* from = row + begin * channels;
    if (channels == 3) {
      divide(from, count, planes[0], planes[1], planes[2]);
    } else {
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t i = 0; i < count; ++i) planes[c][i] = from[i * channels + c];
    }
    const int64_t at = flip ? width - begin - count : begin;
    for (int64_t c = 0; c < channels; ++c) {
      if (flip) turn(planes[c], count, turned);
      scale_plane(flip ? turned : planes[c], count, scale.factor[c], scale.offset[c],
                  out + c * plane + at);
    }
  }
}

// The same for the order of a decoded image. Loops over a known number of channels are vectors.
template <int channels, typename Number>
TRIREME_INLINE void row_to_pixels(const uint8_t* __restrict row, int64_t width, bool flip,
                                  const Scale& scale, Number* __restrict out) {
  const Scale own = scale;
  const int64_t first = flip ? width - 1 : 0, step = flip ? -1 : 1;
  for (int64_t x = 0; x < width; ++x)
    for (int c = 0; c < channels; ++c)
      store(static_cast<float>(row[(first + step * x) * channels + c]) * own.factor[c] +
                own.offset[c],
            out + x * channels + c);
}

template <typename Number>
TRIREME_INLINE void row_to_any_pixels(const uint8_t* row, int64_t width, int64_t channels,
                                      bool flip, const Scale& scale, Number* out) {
  switch (channels) {
    case 1: return row_to_pixels<1>(row, width, flip, scale, out);
    case 2: return row_to_pixels<2>(row, width, flip, scale, out);
    case 3: return row_to_pixels<3>(row, width, flip, scale, out);
    default: return row_to_pixels<4>(row, width, flip, scale, out);
  }
}

template <typename Number>
TRIREME_INLINE void write_rows(const Image& image, const RowOptions& options, const Scale& scale,
                               Number* out) {
  const int64_t height = image.height, width = image.width, channels = image.channels;
  for (int64_t y = 0; y < height; ++y) {
    const uint8_t* row = image.row(options.flip_vertically ? height - 1 - y : y);
    if (options.channels_last)
      row_to_any_pixels(row, width, channels, options.flip_horizontally, scale,
                        out + y * width * channels);
    else
      row_to_planes(row, width, channels, options.flip_horizontally, scale, height * width,
                    out + y * width);
  }
}

TRIREME_CLONES void write_planes(const Planes& planes, const RowOptions& options,
                                 const Scale& scale, float* out) {
  alignas(64) uint8_t turned[kPart];
  const auto [pixels, channels, height, width] = planes;
  for (int64_t c = 0; c < channels; ++c) {
    const float factor = scale.factor[c], offset = scale.offset[c];
    const uint8_t* const plane = pixels + c * height * width;
    float* const to = out + c * height * width;
    if (!options.flip_horizontally && !options.flip_vertically) {
      scale_plane(plane, height * width, factor, offset, to);
      continue;
    }
    for (int64_t y = 0; y < height; ++y) {
      const uint8_t* const row = plane + (options.flip_vertically ? height - 1 - y : y) * width;
      for (int64_t begin = 0; begin < width; begin += kPart) {
        const int64_t count = std::min(kPart, width - begin);
        const int64_t at = options.flip_horizontally ? width - begin - count : begin;
        if (options.flip_horizontally) turn(row + begin, count, turned);
        scale_plane(options.flip_horizontally ? turned : row + begin, count, factor, offset,
                    to + y * width + at);
      }
    }
  }
}

TRIREME_CLONES void write_floats(const Image& image, const RowOptions& options, const Scale& scale,
                                 float* out) {
  write_rows(image, options, scale, out);
}
TRIREME_CLONES void write_bfloats(const Image& image, const RowOptions& options,
                                  const Scale& scale, uint16_t* out) {
  write_rows(image, options, scale, out);
}

template <typename Number>
void erase(const Image& image, const EraseBox& erased, bool channels_last, Number* out) {
  Random noise(erased.noise_bits);
  const auto [top, left, height, width] = erased.box;
  const int64_t plane = image.height * image.width;
  for (int64_t c = 0; c < image.channels; ++c)
    for (int64_t y = top; y < top + height; ++y)
      for (int64_t x = left; x < left + width; ++x) {
        const float value = erased.with_noise ? static_cast<float>(noise.normal())
                                              : erased.values[static_cast<size_t>(c)];
        const int64_t pixel = y * image.width + x;
        store(value, out + (channels_last ? pixel * image.channels + c : c * plane + pixel));
      }
}

Scale checked_scale(int64_t channels, Size size, const RowOptions& options) {
  if (channels < 1 || channels > kMostChannels)
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("an image has {} channels", channels), "1 to 4 channels");
  Scale scale{};
  for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
    const double mean = options.mean[c], std = options.std[c];
    if (!(std > 0) || !std::isfinite(std) || !std::isfinite(mean))
      throw Error(ErrorCode::invalid_argument, "images",
                  fmt::format("channel {} is normalised with mean {} and std {}", c, mean, std),
                  "a finite mean and a positive std");
    scale.factor[c] = static_cast<float>(1 / (255 * std));
    scale.offset[c] = static_cast<float>(-mean / std);
  }
  // An erased box may have no pixel, unlike a crop.
  if (options.erase && options.erase->box.height > 0 && options.erase->box.width > 0)
    check_crop(options.erase->box, size);
  return scale;
}

}  // namespace

void write_row(const Image& image, const RowOptions& options, float* out) {
  write_floats(image, options, checked_scale(image.channels, image.size(), options), out);
  if (options.erase) erase(image, *options.erase, options.channels_last, out);
}

void write_row(const Image& image, const RowOptions& options, uint16_t* out) {
  write_bfloats(image, options, checked_scale(image.channels, image.size(), options), out);
  if (options.erase) erase(image, *options.erase, options.channels_last, out);
}

void write_row(const Planes& planes, const RowOptions& options, float* out) {
  write_planes(planes, options,
               checked_scale(planes.channels, {planes.height, planes.width}, options), out);
}

}  // namespace trireme::images
