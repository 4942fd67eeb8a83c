// Random changes of colour.
#pragma once
#include <trireme/images/image.h>
#include <trireme/images/random.h>
#include <array>
#include <optional>

namespace trireme::images {

// A factor, or the shift of the hue, is uniform in [low, high].
struct JitterRange {
  double low = 1, high = 1;
};
// torchvision's ranges for one number: [max(0, 1 - x), 1 + x] for a factor, [-x, x] for the hue.
JitterRange factors_around_one(double x);
JitterRange shifts_around_zero(double x);

// The options of torchvision's ColorJitter. A change does not happen if both ends of its range
// change nothing.
struct JitterOptions {
  JitterRange brightness, contrast, saturation;  // 0 or more.
  JitterRange hue{0, 0};                         // -0.5 to 0.5, in turns of the circle.
};

enum class ColourChange : uint8_t { brightness, contrast, saturation, hue };

// The factors that were drawn for one image.
struct Jitter {
  std::array<ColourChange, 4> order{ColourChange::brightness, ColourChange::contrast,
                                    ColourChange::saturation, ColourChange::hue};
  std::optional<double> brightness, contrast, saturation, hue;
};

// Throws Error(invalid_argument) for options outside their ranges.
Jitter draw_jitter(const JitterOptions& options, Random& random);

// Applies the changes in their order, each to the bytes that the last one gave, like torchvision
// on uint8: results are within 1 of its results. A grey image changes its brightness and contrast
// only. Throws Error(invalid_argument) unless the image has 1 or 3 channels.
void apply_jitter(const Jitter& jitter, Image& image);

void colour_jitter(Image& image, const JitterOptions& options, Random& random);

}  // namespace trireme::images
