// MixUp and CutMix: samples of a batch are mixed with their neighbours, and so are their targets.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/images/image.h>
#include <trireme/images/random.h>
#include <optional>

namespace trireme::images {

// How a batch is mixed. Sample i is mixed with sample i - 1, and sample 0 with the last one.
struct Mix {
  double lambda = 1;        // The weight of the sample itself.
  std::optional<Crop> box;  // CutMix: this part is the neighbour's. Otherwise: a sum of the two.
};

// MixUp (Zhang et al. 2018, arXiv:1710.09412): lambda is drawn from Beta(alpha, alpha).
// Throws Error(invalid_argument) unless alpha is positive and finite.
Mix draw_mixup(double alpha, Random& random);
// CutMix (Yun et al. 2019, arXiv:1905.04899): the box has the fraction 1 - lambda of the image,
// with lambda from Beta(alpha, alpha), and its middle lies anywhere. What reaches beyond the image
// is left out, and lambda becomes the fraction that is left. A box may be empty.
Mix draw_cutmix(double alpha, Size of_image, Random& random);

// Mixes a batch of floating-point samples [n, ...] in place; for CutMix [n, channels, height,
// width], in any layout of memory. Needs the memory of one more sample. Numbers of 16 bits are
// mixed as float32 and rounded once. Throws Error(invalid_argument) for another dtype or form,
// before anything is changed.
void mix_samples(at::Tensor& batch, const Mix& mix);

// The targets of the mixed batch as float weights [n, classes]. `targets` are classes [n] (int64)
// or weights [n, classes]. Throws Error(invalid_argument) for a class outside 0..classes-1.
at::Tensor mix_targets(const at::Tensor& targets, int64_t classes, const Mix& mix);

}  // namespace trireme::images
