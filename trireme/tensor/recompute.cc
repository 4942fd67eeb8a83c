#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/graph_task.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/tensor/cpu_allocator.h>
#include <trireme/tensor/recompute.h>
#include <trireme/tensor/thread_state.h>
#include <algorithm>
#include <map>
#include <mutex>

namespace trireme {
namespace {

// Ends a second run as soon as it has saved everything. No handler of std::exception sees it.
struct AllIsSaved {};

// The form of a saved tensor, to notice a second run that differs.
struct Form {
  explicit Form(const at::Tensor& tensor)
      : sizes(tensor.sizes().vec()), dtype(tensor.scalar_type()) {}
  bool operator==(const Form&) const = default;
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
};

// An input as the first run had it.
struct KeptInput {
  KeptInput(const at::Tensor& input, const at::Tensor& kept, bool exempt)
      : data(kept.tensor_data()),
        version(data),
        requires_grad(input.requires_grad()),
        is_leaf(input.is_leaf()),
        is_exempt(exempt) {}
  void keep_instead(const at::Tensor& original) {
    data = original.tensor_data();
    version = TensorVersion(data);
  }

  // The same tensor for the second run. It collects no gradient. What was no leaf is none again,
  // because operations in place refuse leaves.
  at::Tensor for_run(const at::Tensor& values) const {
    at::Tensor input = values.tensor_data();
    if (!requires_grad) return input;
    if (is_leaf) return input.set_requires_grad(true);
    torch::autograd::create_gradient_edge(input, c10::make_intrusive<torch::autograd::Identity>());
    return input;
  }

  at::Tensor data;
  TensorVersion version;
  bool requires_grad, is_leaf;
  bool is_exempt;  // The first run left it where it was, so it has no index.
};

// Copies that share memory where the tensors do.
std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  const auto storage_of = [](const at::Tensor& tensor) {
    return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  };
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

// One run of a block in forward, and what backward needs to repeat it. The graph holds it.
class Run : public std::enable_shared_from_this<Run> {
 public:
  Run(std::shared_ptr<const RecomputeSetting> setting, std::shared_ptr<const KeeperSetting> keeper,
      RecomputedBlock::Surroundings surroundings)
      : setting_(std::move(setting)),
        keeper_(std::move(keeper)),
        surroundings_(std::move(surroundings)),
        state_(setting_->random, setting_->buffers) {}

  class FirstRun;
  class SecondRun;

  // `copies`: of the inputs, or empty if the inputs themselves are kept.
  void keep_inputs(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& copies);
  void keep_instead_of_copies(const std::vector<at::Tensor>& inputs);
  void end_first_run() { state_.forget_what_stayed(); }
  at::Tensor get(size_t index);

 private:
  void run_again();
  std::unique_ptr<SavedTensor> keep_if_here(const at::Tensor& tensor) const;

  const std::shared_ptr<const RecomputeSetting> setting_;
  const std::shared_ptr<const KeeperSetting> keeper_;
  const RecomputedBlock::Surroundings surroundings_;
  ThreadState state_;
  std::vector<KeptInput> inputs_;
  StorageSet input_storages_;  // Those that a saved tensor may simply stay in.
  bool inputs_are_copies_ = false;
  std::vector<ActivationBytes::Hold> input_holds_;
  std::vector<Form> forms_;  // [index] The tensors that the first run saved.

  std::mutex mutex_;
  int graph_task_ = -1;  // The backward that results_ were computed for.
  struct Result {
    explicit Result(const at::Tensor& saved) : tensor(saved.tensor_data()), version(saved) {}
    at::Tensor tensor;  // Undefined after its use.
    TensorVersion version;
    ActivationBytes::Hold hold;
  };
  std::vector<Result> results_;  // [index]
};

// The place of a tensor in the order of saving.
class ByIndex : public SavedTensor {
 public:
  ByIndex(std::shared_ptr<Run> run, size_t index) : run_(std::move(run)), index_(index) {}
  at::Tensor get() override { return run_->get(index_); }

 private:
  std::shared_ptr<Run> run_;
  size_t index_;
};

// Counts and forgets.
class Run::FirstRun : public SavedTensorKeeper {
 public:
  explicit FirstRun(Run& run) : run_(run) {}
  std::unique_ptr<SavedTensor> keep(const at::Tensor& tensor) override {
    if (auto here = run_.keep_if_here(tensor)) return here;
    run_.forms_.emplace_back(tensor);
    return std::make_unique<ByIndex>(run_.shared_from_this(), run_.forms_.size() - 1);
  }

 private:
  Run& run_;
};

// Collects. The graph of the second run is never used.
class Run::SecondRun : public SavedTensorKeeper {
 public:
  explicit SecondRun(Run& run) : run_(run) {}
  std::unique_ptr<SavedTensor> keep(const at::Tensor& tensor) override {
    const bool is_of_exempt =
        tensor.has_storage() && exempt_copies.contains(tensor.storage().unsafeGetStorageImpl());
    if (is_of_exempt) return keep_in_place(tensor, run_.keeper_, /*is_counted=*/false);
    if (auto here = run_.keep_if_here(tensor)) return here;
    if (results.size() == run_.forms_.size() || Form(tensor) != run_.forms_[results.size()])
      refuse();
    results.emplace_back(tensor);
    if (tensor.has_storage())
      results.back().hold = run_.keeper_->bytes->hold(results.back().tensor.storage());
    if (results.size() == run_.forms_.size()) throw AllIsSaved();
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
  StorageSet exempt_copies;  // The storages of copies of inputs that are exempt.

 private:
  Run& run_;
};

void Run::keep_inputs(const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Tensor>& copies) {
  inputs_are_copies_ = !copies.empty();
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs_.emplace_back(inputs[i], inputs_are_copies_ ? copies[i] : inputs[i],
                         keeper_->is_exempt(inputs[i]));
    if (!inputs[i].has_storage()) continue;
    const c10::Storage& storage = inputs_[i].data.storage();
    if (!inputs_are_copies_) input_storages_.insert(storage.unsafeGetStorageImpl());
    if (!inputs_[i].is_exempt) input_holds_.push_back(keeper_->bytes->hold(storage));
  }
}

void Run::keep_instead_of_copies(const std::vector<at::Tensor>& inputs) {
  inputs_are_copies_ = false;
  input_holds_.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs_[i].keep_instead(inputs[i]);
    if (!inputs_[i].is_exempt)
      input_holds_.push_back(keeper_->bytes->hold(inputs_[i].data.storage()));
  }
}

// Returns null for a tensor that only a second run has.
std::unique_ptr<SavedTensor> Run::keep_if_here(const at::Tensor& tensor) const {
  if (tensor.has_storage() && input_storages_.contains(tensor.storage().unsafeGetStorageImpl()))
    return keep_in_place(tensor, keeper_, !keeper_->is_exempt(tensor));
  if (keeper_->is_exempt(tensor)) return keep_in_place(tensor, keeper_, /*is_counted=*/false);
  return nullptr;
}

at::Tensor Run::get(size_t index) {
  const std::lock_guard lock(mutex_);
  keeper_->tell_use();
  const int task = torch::autograd::get_current_graph_task_id();
  if (task != graph_task_) results_.clear();
  graph_task_ = task;
  if (results_.empty() || !results_[index].tensor.defined()) run_again();
  const Result used = std::move(results_[index]);
  used.version.check(keeper_->place);
  return used.tensor;
}

void Run::run_again() {
  results_.clear();
  for (const KeptInput& input : inputs_) input.version.check("the input of " + keeper_->place);
  SecondRun again(*this);
  {
    const ThreadStateAgain as_before(state_);
    const std::shared_ptr<void> surroundings = surroundings_ ? surroundings_() : nullptr;
    const at::AutoGradMode with_graph(true);
    const SavedTensorScope scope(&again);
    // Backward may offer memory for gradients of parameters, which activations are not.
    const AllocationScope ordinary(nullptr);
    std::vector<at::Tensor> inputs;
    for (const KeptInput& input : inputs_) inputs.push_back(input.data);
    if (inputs_are_copies_) inputs = copies_of(inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs_are_copies_ && inputs_[i].is_exempt && inputs[i].has_storage())
        again.exempt_copies.insert(inputs[i].storage().unsafeGetStorageImpl());
      inputs[i] = inputs_[i].for_run(inputs[i]);
    }
    try {
      setting_->forward(inputs);
    } catch (const AllIsSaved&) {
    }
  }
  if (again.results.size() != forms_.size()) again.refuse();
  results_ = std::move(again.results);
}

bool any_moved(const std::vector<TensorVersion>& versions) {
  return std::ranges::any_of(versions, &TensorVersion::has_moved);
}

}  // namespace

RecomputedBlock::RecomputedBlock(RecomputeSetting setting)
    : setting_(std::make_shared<const RecomputeSetting>(std::move(setting))) {}

std::vector<at::Tensor> RecomputedBlock::operator()(const std::vector<at::Tensor>& inputs,
                                                    std::shared_ptr<const KeeperSetting> keeper,
                                                    const Surroundings& surroundings) {
  if (!at::GradMode::is_enabled()) return setting_->forward(inputs);
  const auto run = std::make_shared<Run>(setting_, std::move(keeper), surroundings);
  run->keep_inputs(inputs,
                   inputs_ == Inputs::stay ? std::vector<at::Tensor>() : copies_of(inputs));
  std::vector<TensorVersion> versions;
  for (const at::Tensor& input : inputs) versions.emplace_back(input);
  Run::FirstRun first(*run);
  std::vector<at::Tensor> outputs;
  {
    const SavedTensorScope scope(&first);
    outputs = setting_->forward(inputs);
  }
  run->end_first_run();
  if (inputs_ == Inputs::unknown) {
    inputs_ = any_moved(versions) ? Inputs::change : Inputs::stay;
    if (inputs_ == Inputs::stay) run->keep_instead_of_copies(inputs);
  }
  return outputs;
}

}  // namespace trireme
