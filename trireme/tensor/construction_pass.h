// One run of a model's factory, with this thread's operations intercepted below autograd: in a
// recording, and in a replay that makes some of the tensors.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <trireme/tensor/construction_record.h>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trireme {

class ConstructionPass {
 public:
  enum class Kind {
    recording,  // Nothing large gets memory, and no random numbers are drawn.
    replay,     // The steps that are needed run; others only draw their random numbers.
    ordinary,   // All runs as it would without a pass.
  };
  // A recording, or an ordinary pass. Of the storages numbered in `kept`, the memory stays until
  // the pass is destroyed.
  explicit ConstructionPass(Kind kind, std::set<int> kept = {});
  // A replay of the steps of `earlier` (which must live as long) that make `kept`.
  ConstructionPass(const ConstructionRecord& earlier, std::set<int> kept);

  const ConstructionRecord& record() const { return record_; }
  // The storage `number`, which is one of `kept`; null if the pass has not made it.
  c10::Storage kept(int number) const;

  // Called for each operation of the thread.
  void on_operation(const c10::OperatorHandle& operation, c10::DispatchKeySet below,
                    torch::jit::Stack* stack);

 private:
  void run_parts(const c10::OperatorHandle& operation, c10::DispatchKeySet below,
                 torch::jit::Stack* stack);
  bool must_run(const c10::OperatorHandle& operation, const ConstructionStep& step,
                const torch::jit::Stack& stack) const;
  void check_writes(const c10::OperatorHandle& operation, const torch::jit::Stack& stack) const;
  void give_memory_to_results(const c10::OperatorHandle& operation,
                              const torch::jit::Stack& stack) const;
  void run_hollow(const c10::OperatorHandle& operation, torch::jit::Stack* stack);
  void hollow_out(const at::Tensor& tensor);
  using Storages = std::set<const c10::StorageImpl*>;
  // The results' storages that are neither known nor among those `before` the operation.
  std::vector<c10::Storage> new_storages(const c10::OperatorHandle& operation,
                                         const torch::jit::Stack& stack,
                                         const Storages& before) const;
  int number(const c10::Storage& storage);

  Kind kind_;
  const ConstructionRecord* earlier_ = nullptr;
  std::vector<bool> needed_;
  std::set<int> keep_;
  std::map<int, c10::Storage> kept_;
  ConstructionRecord record_;
  // Small memory that was freed by the pass lives on until its end: code may hold a pointer to it.
  std::vector<c10::DataPtr> freed_;
};

// While a scope lives, the calling thread's operations go through the pass. Scopes nest; only the
// innermost one counts.
class ConstructionScope {
 public:
  explicit ConstructionScope(ConstructionPass& pass);
  ~ConstructionScope();
  ConstructionScope(const ConstructionScope&) = delete;
  ConstructionScope& operator=(const ConstructionScope&) = delete;

 private:
  ConstructionPass* previous_;
};

// Whether this LibTorch lets operations be intercepted below autograd.
bool can_intercept_construction();

}  // namespace trireme
