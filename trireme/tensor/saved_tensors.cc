#include <trireme/tensor/saved_tensors.h>

#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/tensor/autograd_engine.h>

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

std::unique_ptr<torch::autograd::SavedVariableHooks> hooks_of_keeper() {
  return std::make_unique<KeeperHooks>(*threads_keeper);
}

void use_keeper(SavedTensorKeeper* keeper) {
  threads_keeper = keeper;
  threads_autograd().saved_hooks = keeper == nullptr ? nullptr : &hooks_of_keeper;
}

}  // namespace

SavedTensorScope::SavedTensorScope(SavedTensorKeeper* keeper) : previous_(threads_keeper) {
  if (keeper != nullptr && !install_autograd_engine())
    throw Error(ErrorCode::unsupported, "tensor",
                "the process has an autograd engine of its own, such as that of Python: nobody "
                "else can keep the tensors that it saves",
                "a process without that engine, or no memory policy");
  use_keeper(keeper);
}
SavedTensorScope::~SavedTensorScope() { use_keeper(previous_); }

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
