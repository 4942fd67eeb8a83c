#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <trireme/parallel/shared/gradient_files.h>
#include <trireme/parallel/shared/model_memory.h>
#include <trireme/parallel/updated_tensors.h>

namespace trireme::shared {

GradientFiles::GradientFiles(std::vector<NamedTensor> parameters,
                             std::shared_ptr<net::SharedMemory> memory, size_t begin,
                             std::vector<size_t> offsets, size_t sources, bool watches)
    : parameters_(std::move(parameters)),
      memory_(std::move(memory)),
      begin_(begin),
      offsets_(std::move(offsets)),
      trail_(memory_, window_of(memory_->bytes())),
      walks_(sources, net::PageWalk(memory_, window_of(memory_->bytes()))) {
  net::bring_neighbours(*memory_, false);  // Backward writes.
  if (!watches) return;
  watch_.emplace(tensors_of(parameters_), [this](int index) { keep(index); });
  watch_->arm(true);
}

// Later micro-batches add to the gradient where it lies.
void GradientFiles::keep(int index) {
  const at::NoGradGuard no_grad;
  const auto i = static_cast<size_t>(index);
  const at::Tensor& parameter = parameters_[i].tensor;
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined() || gradient.scalar_type() != parameter.scalar_type() ||
      gradient.sizes() != parameter.sizes() || !parameter.is_contiguous())
    return;
  std::byte* const place = memory_->data() + begin_ + offsets_[i];
  if (gradient.const_data_ptr() != place) {
    at::Tensor kept = at::from_blob(
        place, parameter.sizes(), [memory = memory_](void*) {},
        parameter.options().requires_grad(false));
    kept.copy_(gradient);
    parameter.mutable_grad() = kept;
  }
  trail_.wrote(offset_of(place), parameter.nbytes());
}

void GradientFiles::keep_all() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    const std::byte* const place = memory_->data() + begin_ + offsets_[i];
    if (parameter.requires_grad() && parameter.grad().defined() &&
        parameter.grad().const_data_ptr() != place)
      keep(static_cast<int>(i));
  }
  trail_.end();
  net::bring_neighbours(*memory_, true);  // The exchange reads.
}

size_t GradientFiles::offset_of(const void* data) const {
  return static_cast<size_t>(static_cast<const std::byte*>(data) - memory_->data());
}

void GradientFiles::used(const void* data, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  if (begin < memory_->data() || begin >= memory_->data() + memory_->bytes()) return;
  trail_.wrote(offset_of(data), bytes);
}

void GradientFiles::used_in_order(size_t source, const void* data, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  if (begin < memory_->data() || begin >= memory_->data() + memory_->bytes()) return;
  walks_[source].use(offset_of(data), bytes);
}

void GradientFiles::leave() {
  trail_.end();
  for (net::PageWalk& walk : walks_) walk.end();
  net::drop(*memory_, 0, memory_->bytes(), /*is_written=*/false);
  net::bring_neighbours(*memory_, false);
}

}  // namespace trireme::shared
