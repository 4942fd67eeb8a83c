#include <trireme/images/rows.h>

#include <fmt/format.h>
#include <trireme/base/clones.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

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

// Mirrors each row of `width` bytes. Rows are often shorter than a vector, so it takes words.
TRIREME_INLINE void turn_rows(const uint8_t* __restrict from, int64_t count, int64_t width,
                              uint8_t* __restrict out) {
  for (const uint8_t* const end = from + count; from < end; from += width, out += width) {
    int64_t i = 0;
    for (uint64_t word = 0; i + 8 <= width; i += 8) {
      std::memcpy(&word, from + width - 8 - i, sizeof word);
      word = __builtin_bswap64(word);
      std::memcpy(out + i, &word, sizeof word);
    }
    for (; i < width; ++i) out[i] = from[width - 1 - i];
  }
}

// Calls piece(begin, count, mirrored, at) for pieces of at most kPart pixels that cover an image:
// `count` pixels from number `begin` on become those from number `at` on. They are whole rows, or
// a part of one, so that there are few pieces. `mirrored` is the length of the rows to be
// mirrored, 0 for none.
template <typename Piece>
TRIREME_INLINE void for_pieces(int64_t height, int64_t width, const RowOptions& options,
                               const Piece& piece) {
  if (width == 0) return;
  const bool mirrors = options.flip_horizontally;
  const int64_t rows = options.flip_vertically ? 1
                       : mirrors               ? std::max<int64_t>(1, kPart / width)
                                               : height;
  for (int64_t y = 0; y < height; y += rows) {
    const int64_t first = (options.flip_vertically ? height - 1 - y : y) * width;
    const int64_t pixels = std::min(rows, height - y) * width;
    for (int64_t begin = 0; begin < pixels; begin += kPart) {
      const int64_t count = std::min(kPart, pixels - begin);
      piece(first + begin, count, mirrors ? std::min(width, count) : 0,
            y * width + (mirrors ? pixels - begin - count : begin));
    }
  }
}

// Pixels of any number of channels become numbers in planes that are `plane` numbers apart.
template <typename Number>
TRIREME_INLINE void piece_to_planes(const uint8_t* from, int64_t count, int64_t channels,
                                    int64_t mirrored, const Scale& scale, int64_t plane,
                                    Number* out) {
  alignas(64) uint8_t planes[kMostChannels][kPart], turned[kPart];
  if (channels == 3) {
    divide(from, count, planes[0], planes[1], planes[2]);
  } else {
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < count; ++i) planes[c][i] = from[i * channels + c];
  }
  for (int64_t c = 0; c < channels; ++c) {
    if (mirrored > 0) turn_rows(planes[c], count, mirrored, turned);
    scale_plane(mirrored > 0 ? turned : planes[c], count, scale.factor[c], scale.offset[c],
                out + c * plane);
  }
}

// One row in the order of a decoded image. Loops over a known number of channels are vectors.
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
  if (!options.channels_last)
    return for_pieces(
        height, width, options,
        [&](int64_t begin, int64_t count, int64_t mirrored, int64_t at)
            __attribute__((always_inline)) {
              piece_to_planes(image.pixels.data() + begin * channels, count, channels, mirrored,
                              scale, height * width, out + at);
            });
  for (int64_t y = 0; y < height; ++y)
    row_to_any_pixels(image.row(options.flip_vertically ? height - 1 - y : y), width, channels,
                      options.flip_horizontally, scale, out + y * width * channels);
}

template <typename Number>
TRIREME_INLINE void write_planes(const Planes& planes, const RowOptions& options,
                                 const Scale& scale, Number* out) {
  alignas(64) uint8_t turned[kPart];
  const auto [pixels, channels, height, width] = planes;
  for (int64_t c = 0; c < channels; ++c) {
    const uint8_t* const from = pixels + c * height * width;
    Number* const to = out + c * height * width;
    for_pieces(
        height, width, options,
        [&](int64_t begin, int64_t count, int64_t mirrored, int64_t at)
            __attribute__((always_inline)) {
              if (mirrored > 0) turn_rows(from + begin, count, mirrored, turned);
              scale_plane(mirrored > 0 ? turned : from + begin, count, scale.factor[c],
                          scale.offset[c], to + at);
            });
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
TRIREME_CLONES void write_float_planes(const Planes& planes, const RowOptions& options,
                                       const Scale& scale, float* out) {
  write_planes(planes, options, scale, out);
}
TRIREME_CLONES void write_bfloat_planes(const Planes& planes, const RowOptions& options,
                                        const Scale& scale, uint16_t* out) {
  write_planes(planes, options, scale, out);
}

template <typename Number>
void write_box(const EraseBox& erased, int64_t channels, Size size, Number* out) {
  const auto [top, left, height, width] = erased.box;
  if (height < 1 || width < 1) return;
  check_crop(erased.box, size);
  Random noise(erased.noise_bits);
  for (int64_t c = 0; c < channels; ++c) {
    const float value =
        erased.values[static_cast<size_t>(std::min<int64_t>(c, kMostChannels - 1))];
    for (int64_t y = top; y < top + height; ++y) {
      Number* const begin = out + (c * size.height + y) * size.width + left;
      for (int64_t x = 0; x < width; ++x)
        store(erased.with_noise ? static_cast<float>(noise.normal()) : value, begin + x);
    }
  }
}

Scale checked_scale(int64_t channels, const RowOptions& options) {
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
  return scale;
}

}  // namespace

void write_row(const Image& image, const RowOptions& options, float* out) {
  write_floats(image, options, checked_scale(image.channels, options), out);
}

void write_row(const Image& image, const RowOptions& options, uint16_t* out) {
  write_bfloats(image, options, checked_scale(image.channels, options), out);
}

void write_row(const Planes& planes, const RowOptions& options, float* out) {
  write_float_planes(planes, options, checked_scale(planes.channels, options), out);
}

void write_row(const Planes& planes, const RowOptions& options, uint16_t* out) {
  write_bfloat_planes(planes, options, checked_scale(planes.channels, options), out);
}

void write_erased(const EraseBox& erased, int64_t channels, Size size, float* row) {
  write_box(erased, channels, size, row);
}

void write_erased(const EraseBox& erased, int64_t channels, Size size, uint16_t* row) {
  write_box(erased, channels, size, row);
}

}  // namespace trireme::images
