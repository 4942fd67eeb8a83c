#include <trireme/images/colour.h>

#include <fmt/format.h>
#include <trireme/base/clones.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <cmath>
#include <utility>

namespace trireme::images {
namespace {

constexpr int kPixels = 512;  // At a time. Their planes stay in the nearest cache.

struct ColourPlanes {
  alignas(64) uint8_t red[kPixels];
  alignas(64) uint8_t green[kPixels];
  alignas(64) uint8_t blue[kPixels];
};

TRIREME_INLINE uint8_t to_byte(float value) {
  return static_cast<uint8_t>(static_cast<int>(std::min(std::max(value, 0.0F), 255.0F)));
}

TRIREME_INLINE float luma(uint8_t red, uint8_t green, uint8_t blue) {
  const float sum = 0.2989F * static_cast<float>(red) + 0.587F * static_cast<float>(green) +
                    0.114F * static_cast<float>(blue);
  return static_cast<float>(static_cast<int>(sum));  // Rounded down.
}

TRIREME_INLINE void divide_pixels(const uint8_t* __restrict from, int count,
                                  ColourPlanes& planes) {
  for (int i = 0; i < count; ++i) {
    planes.red[i] = from[3 * i];
    planes.green[i] = from[3 * i + 1];
    planes.blue[i] = from[3 * i + 2];
  }
}

TRIREME_INLINE void join_pixels(const ColourPlanes& planes, int count, uint8_t* __restrict out) {
  for (int i = 0; i < count; ++i) {
    out[3 * i] = planes.red[i];
    out[3 * i + 1] = planes.green[i];
    out[3 * i + 2] = planes.blue[i];
  }
}

TRIREME_CLONES int64_t sum_of_luma(const uint8_t* pixels, int count) {
  ColourPlanes planes;
  divide_pixels(pixels, count, planes);
  int sum = 0;
  for (int i = 0; i < count; ++i)
    sum += static_cast<int>(luma(planes.red[i], planes.green[i], planes.blue[i]));
  return sum;
}

TRIREME_CLONES void saturate(uint8_t* pixels, int count, float ratio, float rest) {
  ColourPlanes planes;
  divide_pixels(pixels, count, planes);
  for (int i = 0; i < count; ++i) {
    const float grey = rest * luma(planes.red[i], planes.green[i], planes.blue[i]);
    planes.red[i] = to_byte(static_cast<float>(planes.red[i]) * ratio + grey);
    planes.green[i] = to_byte(static_cast<float>(planes.green[i]) * ratio + grey);
    planes.blue[i] = to_byte(static_cast<float>(planes.blue[i]) * ratio + grey);
  }
  join_pixels(planes, count, pixels);
}

// A channel of the colour with hue `sixths` of the circle: its place on a trapezium that begins
// `start` sixths further on.
TRIREME_INLINE uint8_t channel_of(float sixths, float start, float value, float range) {
  float place = sixths + start;
  place = place >= 6 ? place - 6 : place;
  const float slope = std::min(std::min(place, 4 - place), 1.0F);
  return static_cast<uint8_t>(
      static_cast<int>((value - range * std::max(slope, 0.0F)) * 255.999F));
}

// From RGB to hue, saturation and value (Smith 1978), around the circle, and back.
TRIREME_CLONES void turn_hue(uint8_t* pixels, int count, float turn) {
  constexpr float kFromByte = 1.0F / 255;
  ColourPlanes planes;
  divide_pixels(pixels, count, planes);
  for (int i = 0; i < count; ++i) {
    const float r = static_cast<float>(planes.red[i]) * kFromByte;
    const float g = static_cast<float>(planes.green[i]) * kFromByte;
    const float b = static_cast<float>(planes.blue[i]) * kFromByte;
    const float value = std::max(std::max(r, g), b);
    const float range = value - std::min(std::min(r, g), b);
    const float divisor = range > 0 ? range : 1.0F;
    // All three are computed, because vectors have no branches.
    const float from_red = (g - b) / divisor, from_green = (b - r) / divisor + 2;
    const float from_blue = (r - g) / divisor + 4;
    const float not_red = value == g ? from_green : from_blue;
    float h = (value == r ? from_red : not_red) * (1.0F / 6) + turn;
    h = h < 0 ? h + 1 : h;
    h = h >= 1 ? h - 1 : h;
    const float sixths = h * 6;
    planes.red[i] = channel_of(sixths, 5, value, range);
    planes.green[i] = channel_of(sixths, 3, value, range);
    planes.blue[i] = channel_of(sixths, 1, value, range);
  }
  join_pixels(planes, count, pixels);
}

template <typename Step>
void for_parts(Image& image, const Step& step) {
  const int64_t pixels = image.height * image.width;
  for (int64_t begin = 0; begin < pixels; begin += kPixels)
    step(image.pixels.data() + begin * image.channels,
         static_cast<int>(std::min<int64_t>(kPixels, pixels - begin)));
}

// Every byte becomes clamp(byte * ratio + added).
void map_bytes(Image& image, float ratio, float added) {
  uint8_t table[256];
  for (int i = 0; i < 256; ++i) table[i] = to_byte(static_cast<float>(i) * ratio + added);
  for (uint8_t& byte : image.pixels) byte = table[byte];
}

void change_contrast(Image& image, double factor) {
  int64_t sum = 0;
  if (image.channels == 3)
    for_parts(image, [&](uint8_t* part, int count) { sum += sum_of_luma(part, count); });
  else
    for (const uint8_t byte : image.pixels) sum += byte;
  const auto pixels = static_cast<double>(image.height * image.width);
  const auto mean = static_cast<float>(static_cast<double>(sum) / pixels);
  map_bytes(image, static_cast<float>(factor), static_cast<float>(1 - factor) * mean);
}

std::optional<double> draw_from(const JitterRange& range, double neutral, Random& random) {
  if (range.low == neutral && range.high == neutral) return std::nullopt;
  return random.uniform(range.low, range.high);
}

void check_jitter(const JitterRange& range, bool is_hue, std::string_view name) {
  const double least = is_hue ? -0.5 : 0, most = is_hue ? 0.5 : INFINITY;
  if (!(range.low >= least && range.high >= range.low && range.high <= most) ||
      !std::isfinite(range.high))
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("the jitter of {} is {} to {}", name, range.low, range.high),
                is_hue ? "two numbers from -0.5 to 0.5, the smaller one first"
                       : "two numbers from 0, the smaller one first");
}

}  // namespace

JitterRange factors_around_one(double x) { return {std::max(0.0, 1 - x), 1 + x}; }
JitterRange shifts_around_zero(double x) { return {-x, x}; }

Jitter draw_jitter(const JitterOptions& options, Random& random) {
  check_jitter(options.brightness, false, "brightness");
  check_jitter(options.contrast, false, "contrast");
  check_jitter(options.saturation, false, "saturation");
  check_jitter(options.hue, true, "hue");
  Jitter jitter;
  for (size_t i = 3; i > 0; --i)
    std::swap(jitter.order[i],
              jitter.order[static_cast<size_t>(random.below(static_cast<int64_t>(i) + 1))]);
  jitter.brightness = draw_from(options.brightness, 1, random);
  jitter.contrast = draw_from(options.contrast, 1, random);
  jitter.saturation = draw_from(options.saturation, 1, random);
  jitter.hue = draw_from(options.hue, 0, random);
  return jitter;
}

void apply_jitter(const Jitter& jitter, Image& image) {
  if (image.channels != 1 && image.channels != 3)
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("an image whose colours change has {} channels", image.channels),
                "1 or 3 channels");
  const bool coloured = image.channels == 3;
  for (const ColourChange change : jitter.order) switch (change) {
      case ColourChange::brightness:
        if (jitter.brightness) map_bytes(image, static_cast<float>(*jitter.brightness), 0);
        break;
      case ColourChange::contrast:
        if (jitter.contrast) change_contrast(image, *jitter.contrast);
        break;
      case ColourChange::saturation:
        if (jitter.saturation && coloured)
          for_parts(image, [factor = *jitter.saturation](uint8_t* part, int count) {
            saturate(part, count, static_cast<float>(factor), static_cast<float>(1 - factor));
          });
        break;
      case ColourChange::hue:
        if (jitter.hue && coloured)
          for_parts(image, [turn = static_cast<float>(*jitter.hue)](uint8_t* part, int count) {
            turn_hue(part, count, turn);
          });
        break;
    }
}

void colour_jitter(Image& image, const JitterOptions& options, Random& random) {
  apply_jitter(draw_jitter(options, random), image);
}

}  // namespace trireme::images
