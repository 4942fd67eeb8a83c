// Stages that give images.
#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/data/pipeline/image_limits.h>
#include <trireme/data/pipeline/program.h>
#include <trireme/images/colour.h>
#include <trireme/images/decode.h>
#include <trireme/images/frame.h>
#include <trireme/images/regions.h>
#include <trireme/images/resize.h>
#include <algorithm>
#include <cmath>
#include <utility>

namespace trireme::data {
namespace {

using images::Crop;
using images::Image;
using images::Random;
using images::Size;

// As torchvision's references do: the middle 7/8 of an image.
constexpr double kMiddle = 0.875;

Size size_of(const Stage& stage) {
  const std::vector<double>& size = stage.numbers("size");
  return {static_cast<int64_t>(size.front()), static_cast<int64_t>(size.back())};
}
bool is_one_number(const Stage& stage) { return stage.numbers("size").size() == 1; }

void replace(Sample& sample) { std::swap(sample.image, sample.spare); }

// The image is not mirrored before its row is written, so a part of a mirrored image lies on the
// other side. What lies outside the image is the frame.
void cut(Sample& sample, Crop part, const images::Frame& frame = {}) {
  if (sample.flip_horizontally) part.left = sample.width() - part.left - part.width;
  if (sample.flip_vertically) part.top = sample.height() - part.top - part.height;
  const Image& image = pixels_of(sample);
  const bool is_inside = part.left >= 0 && part.top >= 0 &&
                         part.left + part.width <= image.width &&
                         part.top + part.height <= image.height;
  if (is_inside)
    images::crop(image, part, sample.spare);
  else
    images::crop_with_frame(image, part, frame, sample.spare);
  replace(sample);
}

void scale_to(Sample& sample, Size size, int64_t image_bytes) {
  if (sample.height() == size.height && sample.width() == size.width) return;
  const images::DecodeLimits limits = image_limits(image_bytes, sample.channels());
  if (size.height > limits.pixels / size.width)
    throw Error(
        ErrorCode::corrupt, "data",
        fmt::format("an image of {} x {} would be scaled to {} x {} pixels, and at most "
                    "{} are allowed",
                    sample.height(), sample.width(), size.height, size.width, limits.pixels),
        fmt::format("a size with height and width, such as resize(224:224), or {}",
                    limits.more_pixels));
  images::resize(pixels_of(sample), size, sample.spare);
  replace(sample);
}

// The size of an image whose shorter side has `length`; the longer one is rounded down.
Size with_shorter_side(int64_t height, int64_t width, int64_t length) {
  if (height <= width) return {length, std::max<int64_t>(1, length * width / height)};
  return {std::max<int64_t>(1, length * height / width), length};
}

Crop middle_of(int64_t height, int64_t width, Size size) {
  const auto begin = [](int64_t all, int64_t part) {
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(all - part) / 2));
  };
  return {begin(height, size.height), begin(width, size.width), size.height, size.width};
}

Crop draw_resized_crop(const Stage& stage, Size image, uint64_t random) {
  Random numbers(random);
  const std::vector<double>& scale = stage.numbers("scale");
  const std::vector<double>& ratio = stage.numbers("ratio");
  return images::random_resized_crop(image, scale[0], scale[1], ratio[0], ratio[1], numbers);
}

// A file beyond the limits is as useless as a damaged one.
template <typename Decode>
void as_damage(Decode decode) {
  try {
    decode();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::corrupt) throw;
    const auto [what, remedy] = parts_of(error);
    throw Error(ErrorCode::corrupt, "data", what, remedy);
  }
}

ImageStep decode_step(const Stage& stage, int64_t image_bytes) {
  const auto channels = static_cast<int>(stage.number("channels"));
  return [channels, limits = image_limits(image_bytes, channels)](Sample& sample, uint64_t) {
    const records::Field& file = *sample.used.image;
    if (file.encoded)
      return as_damage([&] { images::decode(file.bytes, channels, limits, sample.image); });
    if (sample.planes.channels != channels)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("the image has {} channels, and decode makes {}",
                              sample.planes.channels, channels),
                  fmt::format("decode({})", sample.planes.channels));
  };
}

// Decodes only the part that the random crop keeps.
ImageStep decode_and_crop_step(const Stage& stage, const Stage& crop, int64_t image_bytes) {
  const ImageStep whole = decode_step(stage, image_bytes);
  const auto channels = static_cast<int>(stage.number("channels"));
  return [whole, channels, crop, image_bytes, size = size_of(crop),
          limits = image_limits(image_bytes, channels)](Sample& sample, uint64_t random) {
    const records::Field& file = *sample.used.image;
    if (!file.encoded) {
      whole(sample, random);
      cut(sample, draw_resized_crop(crop, {sample.height(), sample.width()}, random));
      return scale_to(sample, size, image_bytes);
    }
    as_damage([&] {
      const images::Header header = images::read_header(file.bytes, limits);
      const Crop part = draw_resized_crop(crop, {header.height, header.width}, random);
      images::decode(file.bytes, channels, limits, sample.image, part, size);
    });
    scale_to(sample, size, image_bytes);
  };
}

ImageStep flip_step(const Stage& stage, bool vertical) {
  return [p = stage.number("p"), vertical](Sample& sample, uint64_t random) {
    bool& flips = vertical ? sample.flip_vertically : sample.flip_horizontally;
    if (Random(random).uniform() < p) flips = !flips;
  };
}

images::Frame frame_of(const Stage& stage) {
  using images::FrameMode;
  constexpr std::pair<std::string_view, FrameMode> kModes[] = {
      {"constant", FrameMode::constant},
      {"edge", FrameMode::edge},
      {"reflect", FrameMode::reflect},
      {"symmetric", FrameMode::symmetric}};
  images::Frame frame;
  for (const auto& [name, mode] : kModes)
    if (name == stage.word("padding_mode")) frame.mode = mode;
  const std::vector<double>& fill = stage.numbers("fill");
  for (size_t i = 0; i < frame.fill.size(); ++i)
    frame.fill[i] = static_cast<uint8_t>(fill[std::min(i, fill.size() - 1)]);
  return frame;
}

// The pixels of the frame on each side.
struct FrameWidths {
  int64_t left, top, right, bottom;
};

FrameWidths frame_widths_of(const Stage& stage) {
  // One number is for all sides, two are for left and top, and four are all of them.
  const std::vector<double>& padding = stage.numbers("padding");
  const auto side = [&](size_t i) { return static_cast<int64_t>(padding[i % padding.size()]); };
  return {side(0), side(1), side(2), side(3)};
}

ImageStep random_crop_step(const Stage& stage) {
  return [size = size_of(stage), widths = frame_widths_of(stage), frame = frame_of(stage),
          colours = stage.numbers("fill").size(),
          widens = stage.word("pad_if_needed") == "true"](Sample& sample, uint64_t random) {
    check_channels("random_crop", colours, sample.channels());
    auto [left, top, right, bottom] = widths;
    int64_t rows = sample.height() + top + bottom - size.height;
    int64_t columns = sample.width() + left + right - size.width;
    if (widens && rows < 0) {  // torchvision adds what is missing on both sides.
      top -= rows;
      rows = -rows;
    }
    if (widens && columns < 0) {
      left -= columns;
      columns = -columns;
    }
    if (rows < 0 || columns < 0)
      throw Error(
          ErrorCode::invalid_argument, "data",
          fmt::format("random_crop cuts {} x {} out of an image of {} x {}, which has {} x {} "
                      "with its frame",
                      size.height, size.width, sample.height(), sample.width(),
                      sample.height() + top + bottom, sample.width() + left + right),
          "a smaller size, more padding, pad_if_needed=true, or resize in front of it");
    Random numbers(random);
    const int64_t row = numbers.below(rows + 1), column = numbers.below(columns + 1);
    cut(sample, {row - top, column - left, size.height, size.width}, frame);
  };
}

ImageStep jitter_step(const Stage& stage) {
  const auto factors = [&](std::string_view name) {
    const std::vector<double>& numbers = stage.numbers(name);
    return numbers.size() == 1 ? images::factors_around_one(numbers[0])
                               : images::JitterRange{numbers[0], numbers[1]};
  };
  const std::vector<double>& hue = stage.numbers("hue");
  const images::JitterOptions options{.brightness = factors("brightness"),
                                      .contrast = factors("contrast"),
                                      .saturation = factors("saturation"),
                                      .hue = hue.size() == 1
                                                 ? images::shifts_around_zero(hue[0])
                                                 : images::JitterRange{hue[0], hue[1]}};
  return [options](Sample& sample, uint64_t random) {
    Random numbers(random);
    images::colour_jitter(pixels_of(sample), options, numbers);
  };
}

ImageStep resize_step(const Stage& stage, int64_t image_bytes) {
  return [size = size_of(stage), is_length = is_one_number(stage), image_bytes](Sample& sample,
                                                                                uint64_t) {
    scale_to(sample,
             is_length ? with_shorter_side(sample.height(), sample.width(), size.height) : size,
             image_bytes);
  };
}

ImageStep center_of_resized_step(const Stage& stage, int64_t image_bytes) {
  return [size = size_of(stage), image_bytes](Sample& sample, uint64_t) {
    // Large enough for both sides.
    const double factor =
        std::max(static_cast<double>(size.height) / static_cast<double>(sample.height()),
                 static_cast<double>(size.width) / static_cast<double>(sample.width())) /
        kMiddle;
    const int64_t shorter = std::min(sample.height(), sample.width());
    const auto length =
        static_cast<int64_t>(std::nearbyint(static_cast<double>(shorter) * factor));
    const Size scaled =
        with_shorter_side(sample.height(), sample.width(), std::max<int64_t>(1, length));
    scale_to(sample, {std::max(scaled.height, size.height), std::max(scaled.width, size.width)},
             image_bytes);
    cut(sample, middle_of(sample.height(), sample.width(), size));
  };
}

}  // namespace

images::Image& pixels_of(Sample& sample) {
  if (!sample.planes.pixels) return sample.image;
  const auto [pixels, channels, height, width] = std::exchange(sample.planes, {});
  images::Image& image = sample.image;
  image.reshape(height, width, channels);
  const int64_t plane = height * width;
  for (int64_t channel = 0; channel < channels; ++channel) {
    const uint8_t* const from = pixels + channel * plane;
    uint8_t* const to = image.pixels.data() + channel;
    for (int64_t i = 0; i < plane; ++i) to[i * channels] = from[i];
  }
  return image;
}

ImageStep make_image_step(const Stage& stage, const Stage* next, int64_t image_bytes,
                          bool& took_next) {
  const std::string_view name = stage.form->name;
  if (name == "decode") {
    took_next = next && crops_while_decoding(stage, *next);
    return took_next ? decode_and_crop_step(stage, *next, image_bytes)
                     : decode_step(stage, image_bytes);
  }
  if (name == "resize") return resize_step(stage, image_bytes);
  if (name == "center_crop")
    return [size = size_of(stage)](Sample& sample, uint64_t) {
      cut(sample, middle_of(sample.height(), sample.width(), size));
    };
  if (name == "random_crop") return random_crop_step(stage);
  if (name == "random_resized_crop")
    return [stage, size = size_of(stage), image_bytes](Sample& sample, uint64_t random) {
      cut(sample, draw_resized_crop(stage, {sample.height(), sample.width()}, random));
      scale_to(sample, size, image_bytes);
    };
  if (name == "center_of_resized") return center_of_resized_step(stage, image_bytes);
  if (name == "flip") return flip_step(stage, false);
  if (name == "flip_vertically") return flip_step(stage, true);
  if (name == "colour_jitter") return jitter_step(stage);
  throw Error(ErrorCode::internal, "data", fmt::format("nothing runs the stage {}", name));
}

}  // namespace trireme::data
