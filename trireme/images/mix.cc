#include <trireme/images/mix.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <cmath>

namespace trireme::images {
namespace {

double draw_lambda(double alpha, Random& random) {
  if (!(alpha > 0) || !std::isfinite(alpha))
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("alpha of mixed samples is {}", alpha),
                "a positive number, such as 1 or 0.2");
  return random.beta(alpha, alpha);
}

void check_batch(const at::Tensor& batch, const Mix& mix) {
  const bool fits = batch.defined() && batch.is_floating_point() &&
                    (mix.box ? batch.dim() == 4 : batch.dim() >= 1);
  if (!fits)
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("a batch of {} with {} dimensions cannot be mixed",
                            batch.defined() ? batch.dtype().name() : "nothing",
                            batch.defined() ? batch.dim() : 0),
                mix.box ? "a floating-point batch [n, channels, height, width]"
                        : "a floating-point batch [n, ...]");
  if (mix.box && mix.box->height > 0 && mix.box->width > 0)
    check_crop(*mix.box, {batch.size(2), batch.size(3)});
}

// Rolls through the batch from its end, so that each sample meets its neighbour unchanged.
template <typename Step>
void for_neighbours(const at::Tensor& batch, const Step& step) {
  const int64_t last = batch.size(0) - 1;
  const at::Tensor kept = batch[last].clone();
  for (int64_t i = last; i > 0; --i) step(batch[i], batch[i - 1]);
  step(batch[0], kept);
}

}  // namespace

Mix draw_mixup(double alpha, Random& random) { return {draw_lambda(alpha, random), {}}; }

Mix draw_cutmix(double alpha, Size of_image, Random& random) {
  const double lambda = draw_lambda(alpha, random);
  const auto [height, width] = of_image;
  if (height < 1 || width < 1)
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("images to be mixed have {}x{} pixels", height, width),
                "a positive height and width");
  const int64_t x = random.below(width), y = random.below(height);
  const double half = 0.5 * std::sqrt(1 - lambda);
  const auto half_width = static_cast<int64_t>(half * static_cast<double>(width));
  const auto half_height = static_cast<int64_t>(half * static_cast<double>(height));
  const int64_t left = std::max<int64_t>(x - half_width, 0);
  const int64_t top = std::max<int64_t>(y - half_height, 0);
  const Crop box{top, left, std::min(y + half_height, height) - top,
                 std::min(x + half_width, width) - left};
  const double cut = static_cast<double>(box.height) * static_cast<double>(box.width);
  return {1 - cut / (static_cast<double>(width) * static_cast<double>(height)), box};
}

void mix_samples(at::Tensor& batch, const Mix& mix) {
  check_batch(batch, mix);
  if (batch.size(0) == 0) return;
  const at::NoGradGuard no_grad;
  if (!mix.box) {
    for_neighbours(batch, [&](const at::Tensor& sample, const at::Tensor& neighbour) {
      if (batch.element_size() > 2)
        sample.mul_(mix.lambda).add_(neighbour, 1 - mix.lambda);
      else  // The sum of numbers of 16 bits is rounded once.
        sample.copy_(
            sample.to(at::kFloat).mul_(mix.lambda).add_(neighbour.to(at::kFloat), 1 - mix.lambda));
    });
    return;
  }
  const auto [top, left, height, width] = *mix.box;
  if (height < 1 || width < 1) return;
  const at::Tensor part = batch.narrow(2, top, height).narrow(3, left, width);
  for_neighbours(part, [](const at::Tensor& sample, const at::Tensor& neighbour) {
    sample.copy_(neighbour);
  });
}

at::Tensor mix_targets(const at::Tensor& targets, int64_t classes, const Mix& mix) {
  const at::NoGradGuard no_grad;
  at::Tensor weights;
  if (targets.dim() == 2 && targets.size(1) == classes) {
    weights = targets.is_floating_point() ? targets.clone() : targets.to(at::kFloat);
  } else if (targets.dim() == 1 && targets.scalar_type() == at::kLong) {
    weights = at::zeros({targets.size(0), classes}, at::kFloat);
    const at::Tensor packed = targets.contiguous();
    const auto* numbers = packed.const_data_ptr<int64_t>();
    auto* out = weights.mutable_data_ptr<float>();
    for (int64_t i = 0; i < targets.size(0); ++i) {
      if (numbers[i] < 0 || numbers[i] >= classes)
        throw Error(ErrorCode::invalid_argument, "images",
                    fmt::format("sample {} of a batch has class {}, but there are {} classes", i,
                                numbers[i], classes),
                    "classes 0 to the number of classes - 1");
      out[i * classes + numbers[i]] = 1;
    }
  } else {
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("targets of form [{}] cannot be mixed for {} classes",
                            fmt::join(targets.sizes(), ", "), classes),
                "classes [n] of int64, or weights [n, classes]");
  }
  if (weights.size(0) > 0) mix_samples(weights, {mix.lambda, {}});
  return weights;
}

}  // namespace trireme::images
