// Random parts of an image: which part is cropped, and which part is erased.
#pragma once
#include <trireme/images/image.h>
#include <trireme/images/random.h>
#include <array>
#include <optional>

namespace trireme::images {

// The crop of torchvision's RandomResizedCrop, which is then resized to the wanted size. Its area
// is a fraction of the image's, uniform in [scale_low, scale_high]. The logarithm of its ratio
// (width to height) is uniform between those of ratio_low and ratio_high. After ten crops that do
// not fit, it is the largest central part whose ratio is allowed.
// Throws Error(invalid_argument) for limits that are not positive or not in order.
Crop random_resized_crop(Size of_image, double scale_low, double scale_high, double ratio_low,
                         double ratio_high, Random& random);

// The largest part with the ratio of `target`, in the middle.
Crop central_crop(Size of_image, Size target);
// A part of exactly this size, anywhere. Throws Error(invalid_argument) if the image is smaller.
Crop random_crop(Size of_image, Size target, Random& random);

// The options of torchvision's RandomErasing (Zhong et al. 2017, arXiv:1708.04896).
struct EraseOptions {
  double probability = 0.5;
  double scale_low = 0.02, scale_high = 0.33;  // The erased fraction of the area.
  double ratio_low = 0.3, ratio_high = 3.3;    // Height to width.
  bool with_noise = false;                     // Normal noise instead of `values`.
  std::array<float, 4> values{};               // One for each channel, after normalisation.
};

// A part of the finished row of a batch, and the numbers that stand in it.
struct EraseBox {
  Crop box;
  bool with_noise = false;
  std::array<float, 4> values{};
  uint64_t noise_bits = 0;
};

// Draws whether and where a sample is erased. Nothing also stands for ten boxes that did not fit.
// Throws Error(invalid_argument) for options outside their ranges.
std::optional<EraseBox> random_erase(Size of_image, const EraseOptions& options, Random& random);

}  // namespace trireme::images
