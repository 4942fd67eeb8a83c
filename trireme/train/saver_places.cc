#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <trireme/train/saver_places.h>
#include <set>
#include <span>

namespace trireme {
namespace {

std::span<std::byte> place_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

at::Tensor empty_like(const checkpoint::TensorView& view) {
  return at::empty(view.spec.shape, at::TensorOptions().dtype(to_torch(view.spec.dtype)));
}

const checkpoint::TensorView& stored(const checkpoint::Saved& saved, const std::string& name,
                                     const at::Tensor& tensor) {
  const checkpoint::TensorView* view = saved.model->find(name);
  if (view == nullptr)
    refuse_checkpoint(
        fmt::format("{} has no tensor '{}' of this model", saved.path.string(), name));
  if (view->spec.shape != tensor.sizes().vec() || !fits_model(tensor, view->spec.dtype))
    refuse_checkpoint(fmt::format(
        "{} holds '{}' as {}, this model has {}", saved.path.string(), name, view->spec.describe(),
        plan::TensorSpec{name, tensor.sizes().vec(), to_stored(tensor.scalar_type()), true}
            .describe()));
  return *view;
}

}  // namespace

void refuse_checkpoint(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "train", what,
              "the checkpoint.dir of the same model, or --fresh to start anew");
}

bool fits_model(const at::Tensor& tensor, plan::DType stored) {
  const plan::DType type = to_stored(tensor.scalar_type());
  // Early checkpoints store bool as uint8, and masks and counters in the type of training.
  return stored == type || (type == plan::DType::boolean && stored == plan::DType::uint8) ||
         (!tensor.is_floating_point() && at::isFloatingType(to_torch(stored)));
}

std::vector<checkpoint::Destination> Places::of(const checkpoint::Saved& saved) {
  others.clear();
  detours_.clear();
  std::vector<checkpoint::Destination> destinations;
  std::set<std::string> known;
  for (const StateEntry& entry : model_) {
    const std::string& name = entry.slice.tensor;
    const at::Tensor& tensor = entry.tensor;
    known.insert(name);
    const checkpoint::TensorView& view = stored(saved, name, tensor);
    const bool direct =
        tensor.is_cpu() && tensor.is_contiguous() &&
        tensor.is_floating_point() == at::isFloatingType(to_torch(view.spec.dtype));
    if (!direct) detours_.emplace_back(tensor, empty_like(view));
    destinations.push_back({&view, place_of(direct ? tensor : detours_.back().second)});
  }
  for (const auto& view : saved.model->tensors())
    if (!known.contains(view.spec.name))
      refuse_checkpoint(fmt::format("{} holds '{}', which this model does not have",
                                    saved.path.string(), view.spec.name));
  if (saved.optimizer)
    for (const auto& view : saved.optimizer->tensors()) {
      others.push_back({view.spec.name, empty_like(view)});
      destinations.push_back({&view, place_of(others.back().tensor)});
    }
  return destinations;
}

void Places::settle() {
  const at::NoGradGuard no_grad;
  for (const auto& [tensor, read] : detours_) tensor.copy_(read);
  for (const StateEntry& entry : model_)
    entry.tensor.unsafeGetTensorImpl()->bump_version();  // Autograd did not see the write.
}

}  // namespace trireme
