#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/tensor/cpu_allocator.h>
#include <trireme/tensor/identity_node.h>
#include <trireme/tensor/repeated_run.h>
#include <algorithm>
#include <map>

namespace trireme {
namespace {

// Ends a repetition as soon as it has saved everything. No handler of std::exception sees it.
struct AllIsSaved {};

const void* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

// Copies that share memory where the tensors do.
std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::map<const void*, int> users;
  for (const at::Tensor& tensor : tensors) ++users[storage_of(tensor)];
  std::map<const void*, at::Tensor> memory;  // By storage: a copy of its bytes.
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    const void* const storage = storage_of(tensor);
    if (storage == nullptr || users[storage] == 1) {
      copies.push_back(tensor.detach().clone());
      continue;
    }
    if (!memory.contains(storage)) {
      const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
      memory[storage] = at::empty({0}, at::kByte).set_(tensor.storage(), 0, {bytes}, {1}).clone();
    }
    copies.push_back(at::empty({0}, tensor.options().requires_grad(false))
                         .set_(memory[storage].storage(), tensor.storage_offset(), tensor.sizes(),
                               tensor.strides()));
  }
  return copies;
}

// Nothing asks for it: the graph of a repetition is never used.
class Forgotten : public SavedTensor {
 public:
  explicit Forgotten(std::string place) : place_(std::move(place)) {}
  at::Tensor get() override {
    throw Error(ErrorCode::invalid_argument, "tensor",
                place_ + " computes gradients in its forward, and did not do so in the first run",
                "memory.rules with =keep for it");
  }

 private:
  std::string place_;
};

bool any_moved(const std::vector<TensorVersion>& versions) {
  return std::ranges::any_of(versions, &TensorVersion::has_moved);
}

}  // namespace

// The form of a saved tensor, to notice a repetition that differs.
struct RepeatedRun::Form {
  explicit Form(const at::Tensor& tensor)
      : sizes(tensor.sizes().vec()), dtype(tensor.scalar_type()) {}
  bool operator==(const Form& other) const { return sizes == other.sizes && dtype == other.dtype; }
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
  bool is_forgotten = false;  // Nobody will ask for the tensor.
};

// An input as the first run had it. Its values may have gone since.
struct RepeatedRun::Input {
  Input(const at::Tensor& input, const at::Tensor& kept, bool exempt)
      : data(kept.tensor_data()),
        version(data),
        requires_grad(input.requires_grad()),
        is_leaf(input.is_leaf()),
        is_exempt(exempt) {}
  void keep_instead(const at::Tensor& values) {
    data = values.tensor_data();
    version = TensorVersion(data);
  }
  // The same tensor for a repetition. It collects no gradient. What was no leaf is none again,
  // because operations in place refuse leaves.
  at::Tensor for_run(const at::Tensor& values) const {
    at::Tensor input = values.tensor_data();
    if (!requires_grad) return input;
    if (is_leaf) return input.set_requires_grad(true);
    torch::autograd::create_gradient_edge(input, make_identity_node());
    return input;
  }

  at::Tensor data;
  TensorVersion version;
  bool requires_grad, is_leaf;
  bool is_exempt;  // The first run left it where it was, so it has no index.
};

struct RepeatedRun::Result {
  explicit Result(const at::Tensor& saved) : tensor(saved.tensor_data()), version(saved) {}
  void forget() {
    hold.release();
    tensor.reset();
  }
  at::Tensor tensor;  // Undefined after its use.
  TensorVersion version;
  ActivationBytes::Hold hold;
};

// Counts and forgets.
class RepeatedRun::FirstRun : public SavedTensorKeeper {
 public:
  FirstRun(RepeatedRun& run, const MakeSaved& saved) : run_(run), saved_(saved) {}
  std::unique_ptr<SavedTensor> keep(const at::Tensor& tensor) override {
    if (auto here = run_.keep_if_here(tensor)) return here;
    run_.forms_.emplace_back(tensor);
    return saved_(run_.forms_.size() - 1);
  }

 private:
  RepeatedRun& run_;
  const MakeSaved& saved_;
};

// Collects. The graph of the repetition is never used.
class RepeatedRun::SavingRun : public SavedTensorKeeper {
 public:
  SavingRun(RepeatedRun& run, const StorageSet& exempt, bool ends_early)
      : run_(run), exempt_(exempt), ends_early_(ends_early) {}
  std::unique_ptr<SavedTensor> keep(const at::Tensor& tensor) override {
    if (run_.is_in(exempt_, tensor))
      return keep_in_place(tensor, run_.keeper_, /*is_counted=*/false);
    if (auto here = run_.keep_if_here(tensor)) return here;
    if (results.size() == run_.forms_.size() || Form(tensor) != run_.forms_[results.size()])
      refuse();
    results.emplace_back(tensor);
    if (run_.forms_[results.size() - 1].is_forgotten)
      results.back().forget();
    else if (tensor.has_storage())
      results.back().hold = run_.keeper_->bytes->hold(results.back().tensor.storage());
    if (ends_early_ && results.size() == run_.forms_.size()) throw AllIsSaved();
    // A forward that computes gradients itself asks for it during this run.
    return keep_in_place(tensor, run_.keeper_, /*is_counted=*/false);
  }
  [[noreturn]] void refuse() const {
    throw Error(
        ErrorCode::invalid_argument, "tensor",
        fmt::format("{} saved {} tensors for backward, and its recomputation other ones: tensor "
                    "{} differs. It depends on something besides its inputs, parameters, buffers "
                    "and random numbers",
                    run_.keeper_->place, run_.forms_.size(), results.size()),
        "memory.rules with =keep for it");
  }

  std::vector<Result> results;

 private:
  RepeatedRun& run_;
  const StorageSet& exempt_;
  const bool ends_early_;
};

// Holds nothing but what forward itself asks for.
class RepeatedRun::PassingRun : public SavedTensorKeeper {
 public:
  PassingRun(const RepeatedRun& run, const StorageSet& exempt) : run_(run), exempt_(exempt) {}
  std::unique_ptr<SavedTensor> keep(const at::Tensor& tensor) override {
    if (auto here = run_.keep_if_here(tensor)) return here;
    if (run_.asks_itself_ || run_.is_in(exempt_, tensor))
      return keep_in_place(tensor, run_.keeper_, /*is_counted=*/false);
    return std::make_unique<Forgotten>(run_.keeper_->place);
  }

 private:
  const RepeatedRun& run_;
  const StorageSet& exempt_;
};

RepeatedRun::RepeatedRun(std::shared_ptr<RepeatedBlock> block,
                         std::shared_ptr<const KeeperSetting> keeper, Surroundings surroundings)
    : block_(std::move(block)),
      keeper_(std::move(keeper)),
      surroundings_(std::move(surroundings)),
      state_(block_->setting.random, block_->setting.buffers) {}

RepeatedRun::~RepeatedRun() = default;

void RepeatedRun::keep_inputs(const Tensors& inputs, const Tensors& copies) {
  inputs_are_there_ = true;
  inputs_are_copies_ = !copies.empty();
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs_.emplace_back(inputs[i], inputs_are_copies_ ? copies[i] : inputs[i],
                         keeper_->is_exempt(inputs[i]));
    if (!inputs_[i].is_exempt)
      input_holds_.push_back(keeper_->bytes->hold(inputs_[i].data.storage()));
  }
}

void RepeatedRun::keep_instead_of_copies(const Tensors& inputs) {
  inputs_are_there_ = true;
  inputs_are_copies_ = false;
  input_holds_.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs_[i].keep_instead(inputs[i]);
    if (!inputs_[i].is_exempt)
      input_holds_.push_back(keeper_->bytes->hold(inputs_[i].data.storage()));
  }
}

void RepeatedRun::forget_inputs() {
  inputs_are_there_ = false;
  input_holds_.clear();
  for (Input& input : inputs_) input.data.reset();
}

bool RepeatedRun::is_in(const StorageSet& storages, const at::Tensor& tensor) const {
  return tensor.has_storage() && storages.contains(storage_of(tensor));
}

// Returns null for a tensor that only a repetition has.
std::unique_ptr<SavedTensor> RepeatedRun::keep_if_here(const at::Tensor& tensor) const {
  if (is_in(input_storages_, tensor))
    return keep_in_place(tensor, keeper_, !keeper_->is_exempt(tensor));
  if (keeper_->is_exempt(tensor)) return keep_in_place(tensor, keeper_, /*is_counted=*/false);
  return nullptr;
}

RepeatedRun::Value RepeatedRun::as_value(const Tensors& outputs) const {
  Value value;
  for (const at::Tensor& output : outputs) {
    value.tensors.push_back(output.tensor_data());
    if (!keeper_->is_exempt(output))
      value.holds.push_back(keeper_->bytes->hold(value.tensors.back().storage()));
  }
  return value;
}

RepeatedRun::Tensors RepeatedRun::run(const Tensors& inputs, bool keeps_inputs,
                                      const MakeSaved& saved) {
  using Inputs = RepeatedBlock::Inputs;
  keep_inputs(inputs, block_->inputs == Inputs::stay ? Tensors() : copies_of(inputs));
  // Inputs that stay anyway may stay for a saved tensor too.
  if (keeps_inputs && !inputs_are_copies_)
    for (const Input& input : inputs_)
      if (input.data.has_storage()) input_storages_.insert(storage_of(input.data));
  std::vector<TensorVersion> versions;
  for (const at::Tensor& input : inputs) versions.emplace_back(input);
  Tensors outputs;
  {
    FirstRun first(*this, saved);
    const SavedTensorScope scope(&first);
    outputs = block_->setting.forward(inputs);
  }
  state_.forget_what_stayed();
  if (block_->inputs == Inputs::unknown) {
    block_->inputs = any_moved(versions) ? Inputs::change : Inputs::stay;
    if (block_->inputs == Inputs::stay) keep_instead_of_copies(inputs);
  }
  has_ended_ = true;
  if (!keeps_inputs) {
    const Value both = as_value(outputs);  // Inputs and outputs are there at this moment.
    forget_inputs();
  }
  return outputs;
}

// `exempt`: gets the storages of copies of inputs that are exempt.
RepeatedRun::Tensors RepeatedRun::inputs_again(Value* given, StorageSet& exempt) {
  Tensors inputs;
  if (given != nullptr) {
    inputs = given->tensors;
  } else {
    for (const Input& input : inputs_) {
      input.version.check("the input of " + keeper_->place);
      inputs.push_back(input.data);
    }
    if (inputs_are_copies_) inputs = copies_of(inputs);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs_[i].is_exempt && inputs[i].has_storage() && !keeper_->is_exempt(inputs[i]))
      exempt.insert(storage_of(inputs[i]));
    inputs[i] = inputs_[i].for_run(inputs[i]);
  }
  return inputs;
}

std::optional<RepeatedRun::Value> RepeatedRun::repeat(Value* inputs, Purpose purpose,
                                                      bool makes_outputs) {
  if (inputs == nullptr && !inputs_are_there_)
    throw Error(ErrorCode::internal, "tensor", "the input of " + keeper_->place + " is gone");
  if (inputs != nullptr && inputs->tensors.size() != inputs_.size())
    throw Error(ErrorCode::invalid_argument, "tensor",
                fmt::format("{} got {} tensors at first, and {} in its recomputation",
                            keeper_->place, inputs_.size(), inputs->tensors.size()),
                "memory.rules with =keep for the block before it");
  if (inputs != nullptr && purpose == Purpose::keep_inputs) {
    keep_instead_of_copies(inputs->tensors);
    if (block_->inputs == RepeatedBlock::Inputs::change) {
      keep_instead_of_copies(copies_of(inputs->tensors));
      inputs_are_copies_ = true;
    }
  }
  const bool saves = purpose == Purpose::save;
  if (saves) results_.clear();
  if (!makes_outputs && (!saves || forms_.empty())) return {};
  if (!has_ended_) asks_itself_ = true;
  StorageSet exempt;
  SavingRun saving(*this, exempt, /*ends_early=*/!makes_outputs);
  PassingRun passing(*this, exempt);
  std::optional<Value> value;
  {
    // Backward may offer memory for gradients of parameters, which activations are not.
    const AllocationScope ordinary(nullptr);
    const ThreadStateAgain as_before(state_);
    const std::shared_ptr<void> surroundings = surroundings_ ? surroundings_() : nullptr;
    const at::AutoGradMode with_graph(true);
    const SavedTensorScope scope(saves ? static_cast<SavedTensorKeeper*>(&saving) : &passing);
    try {
      const Tensors outputs = block_->setting.forward(inputs_again(inputs, exempt));
      if (makes_outputs) value = as_value(outputs);
    } catch (const AllIsSaved&) {
    }
  }
  if (saves && saving.results.size() != forms_.size()) saving.refuse();
  if (saves) {
    results_ = std::move(saving.results);
    results_stay_ = FirstOfTwoBackwards::is_running();
    if (results_stay_) forget_inputs();  // There will be no other repetition.
  }
  return value;
}

void RepeatedRun::forget_saved() { results_.clear(); }

bool RepeatedRun::has(size_t index) const {
  return index < results_.size() && results_[index].tensor.defined();
}

at::Tensor RepeatedRun::take(size_t index) {
  Result& result = results_.at(index);
  result.version.check(keeper_->place);
  if (results_stay_) return result.tensor;
  const Result used = std::move(result);
  return used.tensor;
}

void RepeatedRun::forget(size_t index) {
  forms_[index].is_forgotten = true;
  if (index < results_.size()) results_[index].forget();
}

}  // namespace trireme
