#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <trireme/base/error.h>
#include <trireme/tensor/hollow.h>
#include <trireme/tensor/hollow_call.h>
#include <trireme/tensor/interception.h>
#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

namespace trireme {
namespace {

using c10::IValue;
using torch::jit::Stack;

const std::vector<c10::Argument>& arguments_of(const c10::OperatorHandle& operation) {
  return operation.schema().arguments();
}
bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}
const IValue* first_argument(const c10::OperatorHandle& operation, const Stack& stack) {
  return stack.data() + (stack.size() - arguments_of(operation).size());
}

void append_tensors(const IValue& value, bool written, std::vector<TensorArgument>* all) {
  const auto append = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage()) all->push_back({tensor, written});
  };
  if (value.isTensor()) append(value.toTensor());
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) append(tensor);
  if (value.isOptionalTensorList())
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor) append(*tensor);
}

void give_form(const at::Tensor& to, const at::Tensor& from) {
  to.unsafeGetTensorImpl()->set_storage_offset(from.storage_offset());
  to.unsafeGetTensorImpl()->set_sizes_and_strides(from.sizes(), from.strides());
}

bool has_composite_kernel(const c10::OperatorHandle& operation) {
  using c10::DispatchKey;
  return operation.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) ||
         operation.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
         operation.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// A call of the same operation on tensors of the same form on LibTorch's meta device. Storages
// that arguments share are shared there too.
class MetaCall {
 public:
  MetaCall(const c10::OperatorHandle& operation, const Stack& stack) {
    const auto& arguments = arguments_of(operation);
    const IValue* const first = first_argument(operation, stack);
    for (size_t i = 0; i < arguments.size(); ++i) arguments_.push_back(meta(first[i]));
    // Meta kernels draw nothing.
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() == "generator") arguments_[i] = IValue();
      if (arguments[i].name() == "device") arguments_[i] = c10::Device(c10::kMeta);
    }
    results_ = arguments_;
    const c10::impl::ExcludeDispatchKeyGuard not_again(
        c10::DispatchKeySet({c10::DispatchKey::Fake, kInterceptionKey}));
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    operation.callBoxed(&results_);
  }

  const Stack& arguments() const { return arguments_; }
  const Stack& results() const { return results_; }

  // The CPU tensor that stands for a tensor of the results.
  at::Tensor on_cpu(const at::Tensor& result) {
    if (!result.defined()) return result;
    const auto known = originals_.find(result.storage().unsafeGetStorageImpl());
    const c10::Storage storage =
        known != originals_.end() ? known->second : hollow_storage(result.storage().nbytes());
    originals_.emplace(result.storage().unsafeGetStorageImpl(), storage);
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), result.dtype());
    give_form(tensor, result);
    return tensor;
  }

 private:
  at::Tensor meta_tensor(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return tensor;
    c10::Storage& storage = metas_[tensor.storage().unsafeGetStorageImpl()];
    if (!storage) {
      storage = c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                             c10::DataPtr(nullptr, c10::Device(c10::kMeta)),
                             c10::GetAllocator(c10::kMeta), /*resizable=*/true);
      originals_.emplace(storage.unsafeGetStorageImpl(), tensor.storage());
    }
    at::Tensor meta = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::Meta), tensor.dtype());
    give_form(meta, tensor);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
      meta.unsafeGetTensorImpl()->set_wrapped_number(true);
    return meta;
  }
  IValue meta(const IValue& value) {
    if (value.isTensor()) return meta_tensor(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(meta_tensor(tensor));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        list.push_back(tensor ? std::optional(meta_tensor(*tensor)) : std::nullopt);
      return list;
    }
    return value;
  }

  std::unordered_map<c10::StorageImpl*, c10::Storage> metas_;
  // By storages of the meta device.
  std::unordered_map<c10::StorageImpl*, c10::Storage> originals_;
  Stack arguments_, results_;
};

// LibTorch also has a kernel for all operations on meta tensors that have none. It only throws.
bool has_meta_kernel(const c10::OperatorHandle& operation) {
  using c10::DispatchKey;
  return operation.hasKernelForDispatchKey(DispatchKey::Meta) || has_composite_kernel(operation);
}

// The argument that a result with this alias is.
const IValue& argument_returned(const c10::OperatorHandle& operation, const Stack& stack,
                                const c10::Argument& result) {
  const auto& arguments = arguments_of(operation);
  for (size_t i = 0; i < arguments.size(); ++i)
    if (is_written(arguments[i]) &&
        arguments[i].alias_info()->beforeSets() == result.alias_info()->beforeSets())
      return first_argument(operation, stack)[i];
  throw Error(ErrorCode::unsupported, "tensor",
              operation.schema().name() + " returns an unknown argument");
}

// Some operations with `out` give it another size.
void resize_outputs(const c10::OperatorHandle& operation, const Stack& stack,
                    const MetaCall& call) {
  const auto& arguments = arguments_of(operation);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const IValue& value = first_argument(operation, stack)[i];
    if (!arguments[i].is_out() || !value.isTensor()) continue;
    const at::Tensor& result = call.arguments()[i].toTensor();
    if (value.toTensor().sizes() == result.sizes()) continue;
    resize_hollow(value.toTensor().storage(), result.storage().nbytes());
    give_form(value.toTensor(), result);
  }
}

bool has_outputs(const c10::OperatorHandle& operation) {
  return std::ranges::any_of(arguments_of(operation), &c10::Argument::is_out);
}

[[noreturn]] void refuse_unknown_form(const c10::OperatorHandle& operation) {
  throw Error(ErrorCode::unsupported, "tensor",
              operation.schema().name() + " does not tell the size of its result without values",
              "a model that initialises its tensors without it");
}

// Without a meta kernel, an output that has a size is taken to have the right one.
void check_outputs(const c10::OperatorHandle& operation, const Stack& stack) {
  const auto& arguments = arguments_of(operation);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const IValue& value = first_argument(operation, stack)[i];
    if (arguments[i].is_out() && value.isTensor() && value.toTensor().numel() == 0)
      refuse_unknown_form(operation);
  }
}

Stack results_on_cpu(const c10::OperatorHandle& operation, const Stack& stack) {
  MetaCall call(operation, stack);
  resize_outputs(operation, stack, call);
  Stack results;
  const auto& returns = operation.schema().returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    const IValue& result = call.results()[i];
    if (is_written(returns[i])) {
      results.push_back(argument_returned(operation, stack, returns[i]));
    } else if (result.isTensor()) {
      results.emplace_back(call.on_cpu(result.toTensor()));
    } else if (result.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : result.toTensorVector()) list.push_back(call.on_cpu(tensor));
      results.emplace_back(std::move(list));
    } else {
      throw Error(ErrorCode::unsupported, "tensor",
                  operation.schema().name() + " returns a value beside tensors");
    }
  }
  return results;
}

}  // namespace

std::vector<TensorArgument> tensor_arguments(const c10::OperatorHandle& operation,
                                             const Stack& stack) {
  std::vector<TensorArgument> all;
  const auto& arguments = arguments_of(operation);
  const IValue* const first = first_argument(operation, stack);
  for (size_t i = 0; i < arguments.size(); ++i)
    append_tensors(first[i], is_written(arguments[i]), &all);
  return all;
}

std::vector<at::Tensor> tensors_at_end(const Stack& stack, size_t values) {
  std::vector<TensorArgument> all;
  for (size_t i = stack.size() - values; i < stack.size(); ++i)
    append_tensors(stack[i], false, &all);
  std::vector<at::Tensor> tensors;
  for (TensorArgument& each : all) tensors.push_back(std::move(each.tensor));
  return tensors;
}

bool is_on_cpu(const c10::OperatorHandle& operation, const Stack& stack) {
  for (const TensorArgument& each : tensor_arguments(operation, stack))
    if (!each.tensor.is_cpu()) return false;
  const IValue* const first = first_argument(operation, stack);
  for (size_t i = 0; i < arguments_of(operation).size(); ++i)
    if (first[i].isDevice() && !first[i].toDevice().is_cpu()) return false;
  return true;
}

bool consists_of_others(const c10::OperatorHandle& operation) {
  // copy_ is registered for all backends alike, but its kernel moves the bytes itself.
  return operation.schema().name() != "aten::copy_" &&
         !operation.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         has_composite_kernel(operation);
}

bool only_makes_a_view(const c10::OperatorHandle& operation) {
  const std::string& name = operation.schema().name();
  if (operation.hasTag(at::Tag::inplace_view))
    return name != "aten::resize_" && name != "aten::resize_as_";
  if (name == "aten::set_") return true;
  const auto& returns = operation.schema().returns();
  return !returns.empty() && std::ranges::all_of(returns, [](const c10::Argument& each) {
    return each.alias_info() != nullptr && !each.alias_info()->isWrite();
  });
}

bool only_reads_values(const c10::OperatorHandle& operation) {
  const auto is_tensor = [](const c10::Argument& each) {
    return each.type()->isSubtypeOf(*c10::TensorType::get()) ||
           each.type()->isSubtypeOf(*c10::ListType::ofTensors());
  };
  return !operation.schema().is_mutable() &&
         std::ranges::none_of(operation.schema().returns(), is_tensor);
}

bool is_in_place(const c10::OperatorHandle& operation) {
  return operation.schema().is_mutable() && !has_outputs(operation) &&
         std::ranges::all_of(operation.schema().returns(), is_written);
}

std::optional<size_t> bytes_of_results(const c10::OperatorHandle& operation, const Stack& stack) {
  if (is_in_place(operation)) return 0;
  if (!has_meta_kernel(operation)) return std::nullopt;
  const MetaCall call(operation, stack);
  size_t bytes = 0;
  for (const at::Tensor& tensor : tensors_at_end(call.results(), call.results().size()))
    bytes += tensor.storage().nbytes();
  return bytes;
}

void run_on_forms(const c10::OperatorHandle& operation, Stack* stack,
                  const std::function<void(const at::Tensor&)>& hollow_out) {
  const bool by_arguments =
      is_in_place(operation) || (has_outputs(operation) && !has_meta_kernel(operation));
  Stack results;
  if (by_arguments) {
    check_outputs(operation, *stack);
    for (const c10::Argument& result : operation.schema().returns())
      results.push_back(argument_returned(operation, *stack, result));
  } else {
    if (!has_meta_kernel(operation)) refuse_unknown_form(operation);
    results = results_on_cpu(operation, *stack);
  }
  for (const TensorArgument& each : tensor_arguments(operation, *stack))
    if (each.written) hollow_out(each.tensor);
  torch::jit::drop(*stack, arguments_of(operation).size());
  stack->insert(stack->end(), results.begin(), results.end());
}

}  // namespace trireme
