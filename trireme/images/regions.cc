#include <trireme/images/regions.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <cmath>

namespace trireme::images {
namespace {

constexpr int kTries = 10;

// Python's round(): halves go to the even neighbour.
int64_t rounded(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

void check_ranges(double scale_low, double scale_high, double ratio_low, double ratio_high,
                  std::string_view user) {
  if (!(scale_low >= 0) || !(scale_high >= scale_low) || !(scale_high <= 1))
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("the scale of {} is {} to {}", user, scale_low, scale_high),
                "two fractions of the image's area, the smaller one first");
  if (!(ratio_low > 0) || !(ratio_high >= ratio_low) || !std::isfinite(ratio_high))
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("the ratio of {} is {} to {}", user, ratio_low, ratio_high),
                "two positive numbers, the smaller one first");
}

void check_not_empty(Size size, std::string_view name) {
  if (size.height < 1 || size.width < 1)
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("the {} has {}x{} pixels", name, size.height, size.width),
                "a positive height and width");
}

}  // namespace

Crop random_resized_crop(Size of_image, double scale_low, double scale_high, double ratio_low,
                         double ratio_high, Random& random) {
  check_ranges(scale_low, scale_high, ratio_low, ratio_high, "a random crop");
  check_not_empty(of_image, "image");
  const auto [height, width] = of_image;
  const double area = static_cast<double>(height) * static_cast<double>(width);
  for (int i = 0; i < kTries; ++i) {
    const double target = area * random.uniform(scale_low, scale_high);
    const double ratio = std::exp(random.uniform(std::log(ratio_low), std::log(ratio_high)));
    const int64_t w = rounded(std::sqrt(target * ratio)), h = rounded(std::sqrt(target / ratio));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    const int64_t top = random.below(height - h + 1), left = random.below(width - w + 1);
    return {top, left, h, w};
  }
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  int64_t w = width, h = height;
  // A crop that would have no pixel keeps one.
  if (ratio < ratio_low)
    h = std::max<int64_t>(rounded(static_cast<double>(w) / ratio_low), 1);
  else if (ratio > ratio_high)
    w = std::max<int64_t>(rounded(static_cast<double>(h) * ratio_high), 1);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

Crop central_crop(Size of_image, Size target) {
  check_not_empty(of_image, "image");
  check_not_empty(target, "target of a crop");
  const auto [height, width] = of_image;
  const double by_height = static_cast<double>(height) / static_cast<double>(target.height);
  const double by_width = static_cast<double>(width) / static_cast<double>(target.width);
  const double by = std::min(by_height, by_width);
  const auto side = [by](int64_t wanted, int64_t most) {
    return std::clamp<int64_t>(rounded(static_cast<double>(wanted) * by), 1, most);
  };
  const int64_t h = side(target.height, height), w = side(target.width, width);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

Crop random_crop(Size of_image, Size target, Random& random) {
  check_not_empty(target, "target of a crop");
  if (target.height > of_image.height || target.width > of_image.width)
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("a crop of {}x{} pixels does not fit into an image of {}x{}",
                            target.height, target.width, of_image.height, of_image.width),
                "a smaller crop, or resize the image first");
  return {random.below(of_image.height - target.height + 1),
          random.below(of_image.width - target.width + 1), target.height, target.width};
}

std::optional<EraseBox> random_erase(Size of_image, const EraseOptions& options, Random& random) {
  check_ranges(options.scale_low, options.scale_high, options.ratio_low, options.ratio_high,
               "an erased box");
  if (!(options.probability >= 0 && options.probability <= 1))
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("the probability of erasing is {}", options.probability),
                "a number from 0 to 1");
  check_not_empty(of_image, "image");
  if (random.uniform() >= options.probability) return std::nullopt;
  const auto [height, width] = of_image;
  const double area = static_cast<double>(height) * static_cast<double>(width);
  for (int i = 0; i < kTries; ++i) {
    const double target = area * random.uniform(options.scale_low, options.scale_high);
    const double ratio =
        std::exp(random.uniform(std::log(options.ratio_low), std::log(options.ratio_high)));
    const int64_t h = rounded(std::sqrt(target * ratio)), w = rounded(std::sqrt(target / ratio));
    if (h >= height || w >= width) continue;
    const int64_t top = random.below(height - h + 1), left = random.below(width - w + 1);
    return EraseBox{{top, left, h, w}, options.with_noise, options.values, random.bits()};
  }
  return std::nullopt;
}

}  // namespace trireme::images
