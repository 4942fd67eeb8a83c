// Stages that give images.
#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/data/pipeline/image_limits.h>
#include <trireme/data/pipeline/program.h>
#include <trireme/images/colour.h>
#include <trireme/images/decode.h>
#include <trireme/images/regions.h>
#include <trireme/images/resize.h>
#include <algorithm>
#include <cmath>
#include <cstring>
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

// Copies a part that may reach beyond the image, where it is black.
void crop_with_frame(const Image& from, const Crop& part, Image& into) {
  into.reshape(part.height, part.width, from.channels);
  std::ranges::fill(into.pixels, uint8_t{0});
  const int64_t left = std::max<int64_t>(0, part.left);
  const int64_t right = std::min(from.width, part.left + part.width);
  const int64_t top = std::max<int64_t>(0, part.top);
  const int64_t bottom = std::min(from.height, part.top + part.height);
  if (right <= left) return;
  for (int64_t y = top; y < bottom; ++y)
    std::memcpy(into.row(y - part.top) + (left - part.left) * from.channels,
                from.row(y) + left * from.channels,
                static_cast<size_t>((right - left) * from.channels));
}

// The image is not mirrored before its row is written, so a part of a mirrored image lies on the
// other side.
void cut(Sample& sample, Crop part) {
  if (sample.flip_horizontally) part.left = sample.width() - part.left - part.width;
  if (sample.flip_vertically) part.top = sample.height() - part.top - part.height;
  const Image& image = pixels_of(sample);
  const bool is_inside = part.left >= 0 && part.top >= 0 &&
                         part.left + part.width <= image.width &&
                         part.top + part.height <= image.height;
  if (is_inside)
    images::crop(image, part, sample.spare);
  else
    crop_with_frame(image, part, sample.spare);
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

ImageStep random_crop_step(const Stage& stage) {
  return [size = size_of(stage), frame = static_cast<int64_t>(stage.number("padding"))](
             Sample& sample, uint64_t random) {
    const int64_t rows = sample.height() + 2 * frame - size.height;
    const int64_t columns = sample.width() + 2 * frame - size.width;
    if (rows < 0 || columns < 0)
      throw Error(
          ErrorCode::invalid_argument, "data",
          fmt::format("random_crop cuts {} x {} out of an image of {} x {} with a frame of "
                      "{}",
                      size.height, size.width, sample.height(), sample.width(), frame),
          "a smaller size, more padding, or resize in front of it");
    Random numbers(random);
    const int64_t top = numbers.below(rows + 1), left = numbers.below(columns + 1);
    cut(sample, {top - frame, left - frame, size.height, size.width});
  };
}

ImageStep jitter_step(const Stage& stage) {
  const images::JitterOptions options{.brightness = stage.number("brightness"),
                                      .contrast = stage.number("contrast"),
                                      .saturation = stage.number("saturation"),
                                      .hue = stage.number("hue")};
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
    const auto scaled = [&](int64_t side, int64_t least) {
      return std::max(least,
                      static_cast<int64_t>(std::nearbyint(static_cast<double>(side) * factor)));
    };
    scale_to(sample, {scaled(sample.height(), size.height), scaled(sample.width(), size.width)},
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
