#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <trireme/parallel/trained_apart.h>
#include <trireme/parallel/value_sample.h>
#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>

namespace trireme {
namespace {

constexpr int64_t kStepsBetweenListening = 64, kStepsOfListening = 4;
constexpr int64_t kValues = 16;

using LeafReference = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

struct SeenLeaf {
  LeafReference tensor;  // Its address is not given to another one while this lives.
  uint64_t values = 0;   // A sample of them.
  bool is_trained = false;
};

}  // namespace

struct TrainedApart::Impl {
  std::mutex mutex;  // Autograd has a thread for each accelerator.
  std::unordered_set<const void*> known;
  std::map<const void*, SeenLeaf> seen;
  int64_t steps = 0;
  std::optional<at::CallbackHandle> listener;
  std::thread::id listening_thread;

  // The one of the process. A callback of operations gets no data of its own.
  static inline std::mutex of_process_mutex;
  static inline std::weak_ptr<TrainedApart> of_process;

  static std::unique_ptr<at::ObserverContext> at_operation(const at::RecordFunction&) {
    const auto node = torch::autograd::get_current_node();
    if (const auto* const leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node.get()))
      if (const auto self = current()) self->impl_->look_at(leaf->variable);
    return nullptr;
  }
  static std::shared_ptr<TrainedApart> current() {
    const std::lock_guard lock(of_process_mutex);
    return of_process.lock();
  }

  // Runs before the leaf gets its gradient.
  void look_at(const at::Tensor& leaf) {
    if (!leaf.defined() || leaf.is_inference()) return;
    const void* const key = leaf.unsafeGetTensorImpl();
    const uint64_t values = sample_of(leaf, kValues);
    const std::lock_guard lock(mutex);
    if (known.contains(key)) return;
    SeenLeaf& found =
        seen.try_emplace(key, SeenLeaf{LeafReference(leaf.getIntrusivePtr()), values})
            .first->second;
    found.is_trained = found.is_trained || found.values != values;
  }

  void listen() {
    // The loop may run in another thread than the one that made its engines. That one keeps its
    // callback, because no other thread can remove it.
    if (listener && listening_thread == std::this_thread::get_id()) return;
    listening_thread = std::this_thread::get_id();
    listener = at::addThreadLocalCallback(
        at::RecordFunctionCallback(at_operation).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  }
  void stop_listening() {
    if (listener && listening_thread == std::this_thread::get_id()) at::removeCallback(*listener);
    listener.reset();
    const std::lock_guard lock(mutex);
    std::erase_if(seen, [](const auto& each) { return each.second.tensor.expired(); });
  }
};

std::shared_ptr<TrainedApart> TrainedApart::of_process() {
  const std::lock_guard lock(Impl::of_process_mutex);
  std::shared_ptr<TrainedApart> now = Impl::of_process.lock();
  if (!now) Impl::of_process = now = std::shared_ptr<TrainedApart>(new TrainedApart);
  return now;
}

TrainedApart::TrainedApart() : impl_(std::make_unique<Impl>()) { impl_->listen(); }
TrainedApart::~TrainedApart() { impl_->stop_listening(); }

void TrainedApart::know(const std::vector<NamedTensor>& parameters) {
  const std::lock_guard lock(impl_->mutex);
  for (const auto& [name, tensor] : parameters) {
    impl_->known.insert(tensor.unsafeGetTensorImpl());
    impl_->seen.erase(tensor.unsafeGetTensorImpl());
  }
}

ParameterChange TrainedApart::find_change() const {
  const std::lock_guard lock(impl_->mutex);
  for (const auto& [key, leaf] : impl_->seen)
    if (leaf.is_trained)
      if (const auto tensor = leaf.tensor.lock())
        return {Change::trained_apart, static_cast<int>(std::min<int64_t>(
                                           tensor->numel(), std::numeric_limits<int>::max()))};
  return {};
}

void TrainedApart::end_step() {
  const bool listens = ++impl_->steps % kStepsBetweenListening < kStepsOfListening;
  listens ? impl_->listen() : impl_->stop_listening();
}

}  // namespace trireme
