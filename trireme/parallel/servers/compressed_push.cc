#include <ATen/core/grad_mode.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/compressed_push.h>
#include <algorithm>

namespace trireme::servers {

CompressedPush::CompressedPush(const plan::CompressionOptions& options,
                               const plan::PlacementPlan& placement)
    : codec_(options),
      pieces_(placement.pieces),
      codes_(pieces_.size()),
      kept_(pieces_.size()),
      left_(pieces_.size()) {
  for (const plan::TensorSpec& tensor : placement.facts.tensors)
    if (tensor.dtype != plan::DType::float32 && tensor.dtype != plan::DType::float64)
      throw Error(ErrorCode::unsupported, "parallel",
                  fmt::format("strategy.compression is {}, and '{}' is {}", options.name,
                              tensor.name, plan::to_string(tensor.dtype)),
                  "strategy.compression=none, or parameters of float32");
}

void CompressedPush::encode(const std::vector<NamedTensor>& parameters) {
  const at::NoGradGuard no_grad;
  is_pending_ = true;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const plan::ServerPiece& piece = pieces_[i];
    const at::Tensor& gradient = parameters[static_cast<size_t>(piece.tensor)].tensor.grad();
    codes_[i].clear();
    left_[i] = kept_[i];
    if (!gradient.defined()) continue;
    at::Tensor values =
        gradient.view({-1}).narrow(0, piece.from, piece.count).to(at::kFloat).contiguous();
    const auto count = static_cast<size_t>(piece.count);
    if (!kept_[i].empty()) {
      values = values.clone();
      auto* const sums = values.mutable_data_ptr<float>();
      for (size_t j = 0; j < count; ++j) sums[j] += kept_[i][j];
    }
    if (codec_.has_error_feedback()) left_[i].resize(count);
    codes_[i].resize(static_cast<size_t>(codec_.bytes_of(piece.count)));
    codec_.encode(values.const_data_ptr<float>(), piece.count, codes_[i].data(),
                  codec_.has_error_feedback() ? left_[i].data() : nullptr);
  }
}

}  // namespace trireme::servers
