#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/activation_measure.h>
#include <trireme/parallel/activation_memory.h>
#include <trireme/parallel/module_state.h>
#include <trireme/tensor/cpu_allocator.h>
#include <algorithm>

namespace trireme {
namespace {

RecomputeStep::Kind step_kind_of(plan::MemoryKind kind) {
  switch (kind) {
    case plan::MemoryKind::forward_all: return RecomputeStep::Kind::save;
    case plan::MemoryKind::forward_checkpoint: return RecomputeStep::Kind::keep_inputs;
    case plan::MemoryKind::forward_nothing: return RecomputeStep::Kind::pass;
    case plan::MemoryKind::backward: return RecomputeStep::Kind::backward;
    default:
      throw Error(ErrorCode::internal, "parallel", "a nested plan neither swaps nor compresses");
  }
}

}  // namespace

ActivationMemory::ActivationMemory(const Model& model, ReplicaRandom* random)
    : ActivationMemory(blocks_of(model), storages_of(*model.module), random) {
  inputs_ = model.inputs;
}

ActivationMemory::ActivationMemory(std::vector<Block> blocks, StorageSet of_model,
                                   ReplicaRandom* random)
    : blocks_(std::move(blocks)),
      decisions_(blocks_.size(), plan::MemoryDecision::keep),
      of_model_(std::make_shared<const StorageSet>(std::move(of_model))) {
  for (const Block& block : blocks_)
    recomputed_.emplace_back(RecomputeSetting{block.forward, buffers_of(block), random});
}

ActivationMemory::~ActivationMemory() = default;

void ActivationMemory::decide(const std::vector<plan::MemoryDecision>& decisions,
                              const SwapOptions& swap,
                              const std::vector<plan::MemoryOperation>& operations) {
  if (decisions.size() != blocks_.size())
    throw Error(
        ErrorCode::invalid_argument, "parallel",
        fmt::format("{} decisions for the memory of {} blocks", decisions.size(), blocks_.size()),
        "one for each block");
  const auto any = [&](plan::MemoryDecision each) {
    return std::ranges::count(decisions, each) > 0;
  };
  // Memory that activations leave is to become free, and not to wait for them.
  if (std::ranges::any_of(decisions, [](auto each) { return each != plan::MemoryDecision::keep; }))
    limit_kept_memory();
  if (any(plan::MemoryDecision::swap) && !swap_)
    file_.place = swap_ = make_swap_store(swap, bytes_);
  if (any(plan::MemoryDecision::compress) && !small_.place)
    small_.place = make_bfloat16_place(kLeastMovedBytes, bytes_);
  decisions_ = decisions;
  nested_ = operations.empty() ? std::nullopt : std::optional(nested(operations));
}

ActivationMemory::Nested ActivationMemory::nested(
    const std::vector<plan::MemoryOperation>& operations) const {
  Nested nested{std::vector<bool>(blocks_.size()), {}};
  std::vector<RecomputeStep> steps;
  bool is_forward = true;  // Before the loss.
  for (const plan::MemoryOperation& operation : operations) {
    using enum plan::MemoryKind;
    if (operation.kind == loss) is_forward = false;
    const auto block = static_cast<size_t>(operation.block);
    if (operation.kind == loss || decisions_[block] == plan::MemoryDecision::keep) continue;
    if (is_forward)
      nested.keeps_inputs[block] = operation.kind == forward_checkpoint;
    else
      steps.push_back({step_kind_of(operation.kind), block});
  }
  nested.steps = std::make_shared<const std::vector<RecomputeStep>>(std::move(steps));
  return nested;
}

std::shared_ptr<const KeeperSetting> ActivationMemory::keeper(
    const std::string& place, size_t block, std::shared_ptr<const StorageSet> of_batch) const {
  KeeperSetting setting{place, bytes_, of_model_, std::move(of_batch), {}};
  if (swap_) {
    const int number = static_cast<int>(block);
    setting.on_use = [weak = std::weak_ptr(swap_), number, run = swap_->begin_forward(number)] {
      if (const auto living = weak.lock()) living->begin_backward(number, run);
    };
  }
  return std::make_shared<const KeeperSetting>(std::move(setting));
}

at::Tensor ActivationMemory::output_of(const Batch& batch, const Surroundings& surroundings) {
  const auto of_batch = std::make_shared<const StorageSet>(storages_of(batch));
  Tensors tensors;
  for (const std::string& name : inputs_) tensors.push_back(batch.tensor(name));
  const auto pass =
      nested_ ? std::make_shared<RecomputedPass>(blocks_.size(), nested_->steps) : nullptr;
  for (size_t i = 0; i < blocks_.size(); ++i)
    tensors = run(i, tensors, keeper("the block '" + blocks_[i].name + "'", i, of_batch),
                  surroundings, pass.get());
  return only_output(blocks_, tensors);
}

Tensors ActivationMemory::output_of(size_t block, const Tensors& inputs, const Batch& batch,
                                    const Surroundings& surroundings) {
  return run(block, inputs,
             keeper("the block '" + blocks_[block].name + "'", block,
                    std::make_shared<const StorageSet>(storages_of(batch))),
             surroundings);
}

ActivationMemory::Holds ActivationMemory::hold(const Tensors& tensors, const Batch& batch) const {
  const StorageSet of_batch = storages_of(batch);
  Holds holds;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    const void* const storage = tensor.storage().unsafeGetStorageImpl();
    if (!of_model_->contains(storage) && !of_batch.contains(storage))
      holds.push_back(bytes_->hold(tensor.storage()));
  }
  return holds;
}

Tensors ActivationMemory::run(size_t block, const Tensors& inputs,
                              std::shared_ptr<const KeeperSetting> keeper,
                              const Surroundings& surroundings, RecomputedPass* pass) {
  const auto under = [&](SavedTensorKeeper& saved) {
    const SavedTensorScope scope(&saved);
    return blocks_[block].forward(inputs);
  };
  const auto in = [&](const Place& place) {
    StoredTensors stored(std::move(keeper), place.place, place.known);
    return under(stored);
  };
  switch (decisions_[block]) {
    case plan::MemoryDecision::recompute:
      if (pass != nullptr)
        return pass->run(block, recomputed_[block], inputs, std::move(keeper), surroundings,
                         nested_->keeps_inputs[block]);
      return recomputed_[block](inputs, std::move(keeper), surroundings);
    case plan::MemoryDecision::swap: return in(file_);
    case plan::MemoryDecision::compress: return in(small_);
    case plan::MemoryDecision::keep: break;
  }
  KeptTensors kept(std::move(keeper));
  return under(kept);
}

at::Tensor ActivationMemory::keep(const std::string& place, const Batch& batch,
                                  const std::function<at::Tensor()>& compute) {
  KeptTensors kept(
      keeper(place, blocks_.size(), std::make_shared<const StorageSet>(storages_of(batch))));
  const SavedTensorScope scope(&kept);
  return compute();
}

}  // namespace trireme
