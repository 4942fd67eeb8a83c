#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/parallel/offloaded_model.h>
#include <trireme/tensor/hollow.h>
#include <algorithm>
#include <memory>
#include <string>

namespace trireme {
namespace {

plan::SharedLayout layout_of(const OffloadedTensors& tensors,
                             const fused::FusedOptimizer* optimizer) {
  std::vector<int> states(tensors.updated.size(), 0);
  for (size_t i = 0; optimizer && i < states.size(); ++i)
    states[i] = optimizer->state_tensors(static_cast<int>(i));
  return plan::lay_out(specs_of(tensors.wholes), states, specs_of(tensors.updated));
}

std::shared_ptr<net::SharedMemory> file_in(size_t bytes, const char* purpose,
                                           const std::string& folder) {
  auto file = net::SharedMemory::create_in(folder, bytes, purpose);
  file.reserve(0, bytes);
  return std::make_shared<net::SharedMemory>(std::move(file));
}

// Code that has the storage, or makes it hollow later, need not know where its memory is.
void move_to(const at::Tensor& place, const at::Tensor& tensor) {
  place.copy_(tensor);
  make_hollow(tensor);
  move_memory(place.storage(), tensor.storage());
}

}  // namespace

OffloadOptions offload_of(const MemoryOptions& memory) {
  return {.optimizer = memory.offload != "none",
          .parameters = memory.offload == "parameters",
          .folder = memory.swap_dir};
}

void check_offload(const OffloadOptions& offload, const fused::FusedOptimizer* optimizer) {
  if (offload.name() == "none") return;
  const auto refuse_it = [&](const char* why, const char* remedy) {
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("memory.offload is {}, but {}", offload.name(), why), remedy);
  };
  if (offload.folder.empty()) refuse_it("there is no folder for the files", "memory.swap_dir");
  if (!optimizer)
    refuse_it(
        "only the state of SGD, Adam, AdamW, RMSprop, Adagrad, Lars and Lamb can be in files",
        "one of these optimizers, over parameters of float32 or float64 on the CPU");
}

OffloadedModel::OffloadedModel(OffloadedTensors tensors, fused::FusedOptimizer* optimizer,
                               const OffloadOptions& offload, bool watches_backward)
    : tensors_(std::move(tensors)),
      optimizer_(optimizer),
      layout_(layout_of(tensors_, optimizer)),
      memory_(layout_, offload, file_in, offload.parameters) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; offload.parameters && i < tensors_.wholes.size(); ++i) {
    const at::Tensor& tensor = tensors_.wholes[i].tensor;
    const bool is_alone = tensor.storage().nbytes() == tensor.nbytes() && tensor.nbytes() > 0;
    if (!tensor.is_contiguous() || !is_alone) continue;
    move_to(memory_.view(layout_.parameters[i], tensor), tensor);
    passed(i);
  }
  place_state();
  memory_.leave();
  if (!offload.parameters || tensors_.gradients.empty()) return;
  const std::vector<int> no_states(tensors_.gradients.size(), 0);
  plan::SharedLayout places = plan::lay_out(specs_of(tensors_.gradients), no_states);
  gradients_.emplace(
      tensors_.gradients,
      file_in(std::max<size_t>(64, places.gradient_bytes), "gradients", offload.folder), 0,
      std::move(places.gradients), 1, watches_backward);
}

// State that was loaded lies elsewhere.
void OffloadedModel::place_state() {
  for (size_t i = 0; optimizer_ && i < tensors_.updated.size(); ++i) {
    std::vector<at::Tensor> places;
    for (const size_t offset : layout_.states[i])
      places.push_back(memory_.view(offset, tensors_.updated[i].tensor));
    optimizer_->place_state(static_cast<int>(i), std::move(places), /*copy=*/true);
  }
}

void OffloadedModel::begin_update() {
  bool is_placed = true;
  for (size_t i = 0; optimizer_ && i < tensors_.updated.size(); ++i)
    is_placed = is_placed && optimizer_->state_is_placed(static_cast<int>(i));
  if (!is_placed) place_state();
}

void OffloadedModel::used(const fused::Range& range) {
  const auto i = static_cast<size_t>(range.parameter);
  const at::Tensor& tensor = tensors_.updated[i].tensor;
  const auto element = static_cast<size_t>(tensor.element_size());
  const int64_t first = tensor.storage_offset() - tensors_.wholes[i].tensor.storage_offset();
  memory_.used(range, element, static_cast<size_t>(first));
  if (!gradients_ || !tensor.grad().defined()) return;
  gradients_->used_in_order(0,
                            static_cast<const std::byte*>(tensor.grad().const_data_ptr()) +
                                static_cast<size_t>(range.from) * element,
                            static_cast<size_t>(range.count) * element);
}

void OffloadedModel::end_update() {
  if (gradients_) gradients_->leave();
  memory_.leave();
}

int64_t OffloadedModel::update(std::span<const int> candidates) {
  begin_update();
  const int64_t elements =
      optimizer_ ? fused::update_alone(*optimizer_, tensors_.updated, candidates,
                                       [this](const fused::Range& range) { used(range); })
                 : 0;
  end_update();
  return elements;
}

}  // namespace trireme
