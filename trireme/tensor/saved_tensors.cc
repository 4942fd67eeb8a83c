#include <trireme/tensor/saved_tensors.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <mutex>

namespace trireme {
namespace {

thread_local SavedTensorKeeper* threads_keeper = nullptr;
thread_local int first_of_two_backwards = 0;

class KeeperHooks : public torch::autograd::SavedVariableHooks {
 public:
  explicit KeeperHooks(SavedTensorKeeper& keeper) : keeper_(keeper) {}
  void call_pack_hook(const at::Tensor& tensor) override { saved_ = keeper_.keep(tensor); }
  at::Tensor call_unpack_hook() override { return saved_->get(); }

 private:
  SavedTensorKeeper& keeper_;  // Used by the constructor of the saved variable alone.
  std::unique_ptr<SavedTensor> saved_;
};

class EngineWithKeepers : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks()
      override {
    if (threads_keeper == nullptr) return nullptr;
    return std::make_unique<KeeperHooks>(*threads_keeper);
  }
};

// The engine lives to the end of the process, because graphs do too.
torch::autograd::Engine& engine_with_keepers() {
  static auto* const engine = new EngineWithKeepers();
  return *engine;
}

void install_engine() {
  static std::once_flag once;
  std::call_once(once, [] { torch::autograd::set_default_engine_stub(&engine_with_keepers); });
}

}  // namespace

SavedTensorScope::SavedTensorScope(SavedTensorKeeper* keeper) : previous_(threads_keeper) {
  if (keeper != nullptr) install_engine();
  threads_keeper = keeper;
}
SavedTensorScope::~SavedTensorScope() { threads_keeper = previous_; }

FirstOfTwoBackwards::FirstOfTwoBackwards() { ++first_of_two_backwards; }
FirstOfTwoBackwards::~FirstOfTwoBackwards() { --first_of_two_backwards; }
bool FirstOfTwoBackwards::is_running() { return first_of_two_backwards > 0; }

TensorVersion::TensorVersion(const at::Tensor& tensor)
    : counter_(torch::autograd::impl::version_counter(tensor)),
      version_(counter_.current_version()) {}

bool TensorVersion::has_moved() const { return counter_.current_version() != version_; }

void TensorVersion::check(const std::string& place) const {
  if (!has_moved()) return;
  throw Error(ErrorCode::invalid_argument, "tensor",
              fmt::format("a tensor that {} needs for its gradients was at version {} when it was "
                          "saved, and an operation in place has made it version {}",
                          place, version_, counter_.current_version()),
              "an operation that is not in place");
}

bool is_parameter_or_view(const at::Tensor& tensor) {
  const auto collects = [](const at::TensorBase& t) { return t.is_leaf() && t.requires_grad(); };
  return collects(tensor) || (tensor.is_view() && collects(tensor._base()));
}

}  // namespace trireme
