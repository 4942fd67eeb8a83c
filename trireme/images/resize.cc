#include <trireme/images/resize.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <trireme/base/error.h>

namespace trireme::images {
namespace {

// The image as a batch of one, in LibTorch's order of dimensions and the image's own memory.
at::Tensor tensor_of(const Image& image) {
  const auto bytes = static_cast<int64_t>(image.pixels.size());
  return at::from_blob(const_cast<uint8_t*>(image.pixels.data()),
                       {1, image.channels, image.height, image.width},
                       {bytes, 1, image.row_bytes(), image.channels}, at::kByte);
}

}  // namespace

void resize(const Image& from, Size to, Image& into) {
  if (from.pixels.empty() || to.height < 1 || to.width < 1)
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("an image of {}x{} pixels is to be resized to {}x{}", from.height,
                            from.width, to.height, to.width),
                "positive sizes");
  into.reshape(to.height, to.width, from.channels);
  if (from.size() == to) {
    into.pixels = from.pixels;
    return;
  }
  const at::NoGradGuard no_grad;
  at::Tensor out = tensor_of(into);
  at::_upsample_bilinear2d_aa_out(out, tensor_of(from), {to.height, to.width},
                                  /*align_corners=*/false);
}

}  // namespace trireme::images
