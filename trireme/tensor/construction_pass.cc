#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <trireme/base/error.h>
#include <trireme/tensor/construction_pass.h>
#include <trireme/tensor/hollow.h>
#include <trireme/tensor/hollow_call.h>
#include <trireme/tensor/skipped_draws.h>
#include <memory>
#include <utility>

namespace trireme {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

// A key of LibTorch's that comes below autograd, so that views, versions and gradients are those
// of an ordinary run, and above all that computes. LibTorch reserves it for this purpose.
constexpr c10::DispatchKey kConstructionKey = c10::DispatchKey::Fake;

// Results up to this size are computed while recording, if they can be: models read numbers such
// as the rates of linspace() from tensors while they are made.
constexpr size_t kSmallBytes = 4096;

thread_local ConstructionPass* current_pass = nullptr;

[[noreturn]] void refuse_operation(const OperatorHandle& operation, const std::string& why) {
  throw Error(ErrorCode::unsupported, "tensor",
              fmt::format("{} {}", operation.schema().name(), why),
              "a model that initialises its tensors with operations of LibTorch alone");
}

void intercept(const OperatorHandle& operation, c10::DispatchKeySet keys, Stack* stack) {
  const c10::DispatchKeySet below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kConstructionKey);
  if (current_pass != nullptr) return current_pass->on_operation(operation, below, stack);
  operation.redispatchBoxed(below, stack);
}

// A later LibTorch may use the key itself, and then refuses a second user.
std::unique_ptr<torch::Library> try_to_intercept() {
  try {
    auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "_", kConstructionKey,
                                                    __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&intercept>());
    return library;
  } catch (const c10::Error&) {
    return nullptr;
  }
}
const std::unique_ptr<torch::Library> interception_library = try_to_intercept();

void run_with_memory(const OperatorHandle& operation, c10::DispatchKeySet below, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(kConstructionKey);
  operation.redispatchBoxed(below, stack);
}

std::set<const c10::StorageImpl*> storages_of(const OperatorHandle& operation,
                                              const Stack& stack) {
  std::set<const c10::StorageImpl*> storages;
  for (const TensorArgument& each : tensor_arguments(operation, stack))
    storages.insert(each.tensor.storage().unsafeGetStorageImpl());
  return storages;
}

at::Generator generator_of(const OperatorHandle& operation, const Stack& stack) {
  const auto& arguments = operation.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[stack.size() - arguments.size() + i];
    if (value.isGenerator()) return value.toGenerator();
  }
  return at::detail::getDefaultCPUGenerator();
}

}  // namespace

bool can_intercept_construction() { return interception_library != nullptr; }

ConstructionPass::ConstructionPass(Kind kind, std::set<int> kept)
    : kind_(kind), keep_(std::move(kept)) {}
ConstructionPass::ConstructionPass(const ConstructionRecord& earlier, std::set<int> kept)
    : kind_(Kind::replay),
      earlier_(&earlier),
      needed_(earlier.steps_for(kept)),
      keep_(std::move(kept)) {}

c10::Storage ConstructionPass::kept(int number) const {
  const auto found = kept_.find(number);
  return found == kept_.end() ? c10::Storage() : found->second;
}

void ConstructionPass::on_operation(const OperatorHandle& operation, c10::DispatchKeySet below,
                                    Stack* stack) {
  if (consists_of_others(operation)) return run_parts(operation, below, stack);
  if (only_makes_a_view(operation) || !is_on_cpu(operation, *stack))
    return run_with_memory(operation, below, stack);
  ConstructionStep step{.operation = operation.schema().name()};
  for (const TensorArgument& each : tensor_arguments(operation, *stack)) {
    const auto number = record_.number_of(each.tensor.storage());
    if (number) (each.written ? step.writes : step.reads).push_back(*number);
  }
  const bool draws = draws_random_numbers(operation);
  if (draws) {
    step.draws_by_data = !fills_with_random_numbers(operation);
    record_.will_draw_from(generator_of(operation, *stack));
  }
  if (kind_ != Kind::ordinary) check_writes(operation, *stack);
  const Storages before = storages_of(operation, *stack);
  if (must_run(operation, step, *stack)) {
    step.is_real = kind_ == Kind::recording ||
                   (kind_ == Kind::replay && earlier_->steps[record_.steps.size()].is_real);
    give_memory_to_results(operation, *stack);
    run_with_memory(operation, below, stack);
  } else {
    if (kind_ == Kind::replay && draws) {
      const c10::impl::ExcludeDispatchKeyGuard once(kConstructionKey);
      draw_and_discard(operation, below,
                       torch::jit::last(*stack, operation.schema().arguments().size()).vec());
    }
    run_hollow(operation, stack);
  }
  for (const c10::Storage& storage : new_storages(operation, *stack, before))
    step.writes.push_back(number(storage));
  record_.steps.push_back(std::move(step));
}

// The kernel calls other operations, which come here one by one. A tensor of a few bytes it may
// make by itself.
void ConstructionPass::run_parts(const OperatorHandle& operation, c10::DispatchKeySet below,
                                 Stack* stack) {
  const Storages before = storages_of(operation, *stack);
  operation.redispatchBoxed(below, stack);
  for (const c10::Storage& storage : new_storages(operation, *stack, before))
    record_.steps.push_back(
        {.operation = operation.schema().name(), .writes = {number(storage)}, .is_real = true});
}

std::vector<c10::Storage> ConstructionPass::new_storages(const OperatorHandle& operation,
                                                         const Stack& stack,
                                                         const Storages& before) const {
  std::vector<c10::Storage> storages;
  Storages known = before;
  for (const at::Tensor& tensor : tensors_at_end(stack, operation.schema().returns().size())) {
    const c10::Storage& storage = tensor.storage();
    if (tensor.is_cpu() && !record_.number_of(storage) &&
        known.insert(storage.unsafeGetStorageImpl()).second)
      storages.push_back(storage);
  }
  return storages;
}

bool ConstructionPass::must_run(const OperatorHandle& operation, const ConstructionStep& step,
                                const Stack& stack) const {
  if (kind_ == Kind::ordinary) return true;
  if (kind_ == Kind::replay) {
    const size_t next = record_.steps.size();
    if (next >= needed_.size() || earlier_->steps[next].operation != step.operation)
      refuse_operation(operation, "was not called at this place when the model was first made");
    return needed_[next];
  }
  size_t bytes = 0;
  for (const TensorArgument& each : tensor_arguments(operation, stack)) {
    if (is_hollow(each.tensor)) {
      if (only_reads_values(operation))
        refuse_operation(operation, "reads values of a tensor while the model is made");
      return false;
    }
    bytes += each.tensor.nbytes();
  }
  if (only_reads_values(operation)) return true;
  if (draws_random_numbers(operation)) return false;
  return bytes_of_results(operation, stack).value_or(bytes) <= kSmallBytes;
}

// The memory of a tensor from elsewhere is not the pass's to change or to free.
void ConstructionPass::check_writes(const OperatorHandle& operation, const Stack& stack) const {
  for (const TensorArgument& each : tensor_arguments(operation, stack))
    if (each.written && !record_.number_of(each.tensor.storage()))
      refuse_operation(operation, "changes a tensor that was not made with the model");
}

void ConstructionPass::give_memory_to_results(const OperatorHandle& operation,
                                              const Stack& stack) const {
  for (const TensorArgument& each : tensor_arguments(operation, stack)) {
    if (!is_hollow(each.tensor)) continue;
    if (!each.written) refuse_operation(operation, "needs a tensor that has no values");
    give_memory(each.tensor);
  }
}

void ConstructionPass::run_hollow(const OperatorHandle& operation, Stack* stack) {
  run_on_forms(operation, stack, [this](const at::Tensor& tensor) { hollow_out(tensor); });
}

void ConstructionPass::hollow_out(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  if (is_hollow(storage) || storage.nbytes() == 0) return;
  if (storage.nbytes() > kSmallBytes) return make_hollow(storage);
  const c10::Storage last = hollow_storage(storage.nbytes());
  move_memory(storage, last);
  freed_.push_back(std::move(last.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()));
}

int ConstructionPass::number(const c10::Storage& storage) {
  const int number = record_.add(storage);
  if (keep_.contains(number)) kept_.emplace(number, storage);
  return number;
}

ConstructionScope::ConstructionScope(ConstructionPass& pass)
    : previous_(std::exchange(current_pass, &pass)) {
  if (previous_ == nullptr) c10::impl::tls_set_dispatch_key_included(kConstructionKey, true);
}
ConstructionScope::~ConstructionScope() {
  current_pass = previous_;
  if (previous_ == nullptr) c10::impl::tls_set_dispatch_key_included(kConstructionKey, false);
}

}  // namespace trireme
