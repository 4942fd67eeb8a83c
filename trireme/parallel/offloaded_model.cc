#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <trireme/parallel/offloaded_model.h>
#include <algorithm>
#include <memory>
#include <string>

namespace trireme {
namespace {

plan::SharedLayout layout_of(const std::vector<NamedTensor>& parameters,
                             const fused::FusedOptimizer& optimizer) {
  std::vector<int> states;
  for (size_t p = 0; p < parameters.size(); ++p)
    states.push_back(optimizer.state_tensors(static_cast<int>(p)));
  return plan::lay_out(specs_of(parameters), states);
}

std::shared_ptr<net::SharedMemory> file_in(size_t bytes, const char* purpose,
                                           const std::string& folder) {
  auto file = net::SharedMemory::create_in(folder, bytes, purpose);
  file.reserve(0, bytes);
  return std::make_shared<net::SharedMemory>(std::move(file));
}

}  // namespace

OffloadedModel::OffloadedModel(std::vector<NamedTensor>& parameters,
                               fused::FusedOptimizer& optimizer, const OffloadOptions& offload,
                               bool is_alone)
    : parameters_(parameters),
      optimizer_(optimizer),
      layout_(layout_of(parameters, optimizer)),
      memory_(layout_, offload, file_in, offload.parameters) {
  const at::NoGradGuard no_grad;
  for (size_t p = 0; offload.parameters && p < parameters_.size(); ++p) {
    at::Tensor& tensor = parameters_[p].tensor;
    if (!tensor.is_contiguous()) continue;
    at::Tensor place = memory_.view(layout_.parameters[p], tensor);
    place.copy_(tensor);
    tensor.set_data(place);
  }
  place_state();
  memory_.leave();
  if (offload.parameters && is_alone)
    gradients_.emplace(
        parameters_,
        file_in(std::max<size_t>(64, layout_.gradient_bytes), "gradients", offload.folder), 0,
        layout_.gradients, 1);
}

// State that was loaded lies elsewhere.
void OffloadedModel::place_state() {
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const int number = static_cast<int>(p);
    std::vector<at::Tensor> places;
    for (const size_t offset : layout_.states[p])
      places.push_back(memory_.view(offset, parameters_[p].tensor));
    optimizer_.place_state(number, std::move(places), /*copy=*/true);
  }
}

int64_t OffloadedModel::update(std::span<const int> candidates) {
  bool is_placed = true;
  for (size_t p = 0; p < parameters_.size(); ++p)
    is_placed = is_placed && optimizer_.state_is_placed(static_cast<int>(p));
  if (!is_placed) place_state();
  const int64_t elements =
      fused::update_alone(optimizer_, parameters_, candidates, [&](const fused::Range& range) {
        const at::Tensor& tensor = parameters_[static_cast<size_t>(range.parameter)].tensor;
        const auto element = static_cast<size_t>(tensor.element_size());
        memory_.used(range, element);
        if (gradients_)
          gradients_->used_in_order(0,
                                    static_cast<const std::byte*>(tensor.grad().const_data_ptr()) +
                                        static_cast<size_t>(range.from) * element,
                                    static_cast<size_t>(range.count) * element);
      });
  if (gradients_) gradients_->leave();
  memory_.leave();
  return elements;
}

}  // namespace trireme
