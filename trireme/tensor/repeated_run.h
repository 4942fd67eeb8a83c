// One run of a block in forward, and what backward needs to repeat it. For recompute.cc.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/tensor/recompute.h>
#include <trireme/tensor/thread_state.h>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace trireme {

// The facts that a block's runs share.
struct RepeatedBlock {
  RecomputeSetting setting;
  // Whether forward changes its inputs in place is known after the first run.
  enum class Inputs { unknown, stay, change } inputs = Inputs::unknown;
};

// The caller takes turns between threads. Bytes that it holds are counted.
class RepeatedRun {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Surroundings = RecomputedBlock::Surroundings;

  RepeatedRun(std::shared_ptr<RepeatedBlock> block, std::shared_ptr<const KeeperSetting> keeper,
              Surroundings surroundings);
  ~RepeatedRun();

  // The first run. `saved` makes the saved tensor whose get() leads to take(index). The inputs
  // stay until forget_inputs() if `keeps_inputs`.
  using MakeSaved = std::function<std::unique_ptr<SavedTensor>(size_t index)>;
  Tensors run(const Tensors& inputs, bool keeps_inputs, const MakeSaved& saved);

  // The tensors between two blocks in a repetition.
  struct Value {
    Tensors tensors;
    std::vector<ActivationBytes::Hold> holds;  // They end before the tensors do.
  };
  enum class Purpose {
    save,         // Takes what autograd saves.
    keep_inputs,  // Keeps the inputs for the next repetition, and saves nothing.
    pass,         // Only makes outputs.
  };
  // Runs forward again. `inputs`: null for those that it keeps. The result is empty unless
  // `makes_outputs`.
  std::optional<Value> repeat(Value* inputs, Purpose purpose, bool makes_outputs);

  bool has_ended() const { return has_ended_; }  // The first run.
  // Whether a repetition has saved a tensor that has not been taken since.
  bool has(size_t index) const;
  // A tensor that a repetition has saved in the first of two backwards: it may be taken again.
  bool stays(size_t index) const { return results_stay_ && has(index); }
  at::Tensor take(size_t index);
  // Nobody will ask for the tensor any more.
  void forget(size_t index);
  void forget_saved();
  void forget_inputs();
  const KeeperSetting& keeper() const { return *keeper_; }

 private:
  class FirstRun;
  class SavingRun;
  class PassingRun;
  struct Form;
  struct Input;
  struct Result;

  void keep_inputs(const Tensors& inputs, const Tensors& copies);
  void keep_instead_of_copies(const Tensors& inputs);
  Tensors inputs_again(Value* given, StorageSet& exempt);
  std::unique_ptr<SavedTensor> keep_if_here(const at::Tensor& tensor) const;
  bool is_in(const StorageSet& storages, const at::Tensor& tensor) const;
  Value as_value(const Tensors& outputs) const;

  const std::shared_ptr<RepeatedBlock> block_;
  const std::shared_ptr<const KeeperSetting> keeper_;
  const Surroundings surroundings_;
  ThreadState state_;
  bool has_ended_ = false;
  bool asks_itself_ = false;  // Forward computes gradients of its own, and uses what it saved.
  std::vector<Input> inputs_;
  bool inputs_are_there_ = false, inputs_are_copies_ = false;
  StorageSet input_storages_;  // A saved tensor may simply stay in these.
  std::vector<ActivationBytes::Hold> input_holds_;
  std::vector<Form> forms_;      // [index] The tensors that the first run saved.
  std::vector<Result> results_;  // [index] Those of the last repetition.
  bool results_stay_ = false;
};

}  // namespace trireme
