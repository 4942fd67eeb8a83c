#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>
#include <trireme/tensor/replica_random.h>
#include <algorithm>
#include <mutex>

namespace trireme {
namespace {

thread_local at::Generator* current = nullptr;

bool is_on_a_device(const c10::IValue& value) {
  const auto is_one = [](at::Device device) { return !device.is_cpu() && !device.is_meta(); };
  if (value.isTensor()) return value.toTensor().defined() && is_one(value.toTensor().device());
  return value.isDevice() && is_one(value.toDevice());
}

// Fills in the thread's generator if the caller gave none, then runs the operation as usual.
void with_generator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  // A device has a generator of its own.
  const bool draws_on_host =
      current != nullptr && std::none_of(stack->begin() + static_cast<std::ptrdiff_t>(first),
                                         stack->end(), is_on_a_device);
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (arguments[i].name() == "generator" && value.isNone() && draws_on_host) value = *current;
  }
  const c10::impl::ExcludeDispatchKeyGuard once(kInterceptionKey);
  op.callBoxed(stack);
}

bool takes_generator(const c10::FunctionSchema& schema) {
  for (const auto& argument : schema.arguments())
    if (argument.name() == "generator") return true;
  return false;
}

}  // namespace

// Registers a kernel for every operation that takes a generator, composite ones included: some
// kernels pass a missing generator on without another dispatch.
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto operation = dispatcher.findSchema(name);
    if (!operation || !takes_generator(operation->schema())) continue;
    const std::string full =
        name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&with_generator>());
  }
}

ReplicaRandom::ReplicaRandom(uint64_t seed)
    : generator_(at::detail::createCPUGenerator(seed)), previous_(current) {
  current = &generator_;
}

ReplicaRandom::~ReplicaRandom() { current = previous_; }

ReplicaRandom::Mark ReplicaRandom::mark() const { return generator_.get_state(); }
void ReplicaRandom::restore(const Mark& mark) { generator_.set_state(mark); }

void ReplicaRandom::reseed(uint64_t seed) {
  generator_.set_current_seed(seed);
  if (!of_device_.defined()) return;
  const std::lock_guard lock(of_device_.mutex());
  of_device_.set_current_seed(seed);
}

void ReplicaRandom::draw_on(at::Device device) {
  of_device_ = at::globalContext().defaultGenerator(device);
}

}  // namespace trireme
