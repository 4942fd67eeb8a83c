// The backward of a part of a model in two halves, which zero-bubble schedules need (Qi et al.
// 2023, "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 2): the gradients of the
// part's inputs first, because another stage waits for them, and the gradients of its parameters
// later.
//
// An operation between the inputs and the outputs is on the way. If it also uses parameters, or
// tensors that are made of parameters alone, its backward computes two kinds of gradients. Where
// these are computations apart, the second kind is deferred: the first half keeps the gradient
// that arrives at the operation, and the second half starts there. That holds for matrix products,
// convolutions, sums, differences and products of tensors. All other operations compute both kinds
// at once, in the first half: normalisations, whose gradients have sums in common, functions of
// the user's own, and operations with hooks, which must run only once.
#pragma once
#include <trireme/data/batch.h>
#include <trireme/tensor/activation_bytes.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace trireme::pipeline {

// Code around the halves. Each function may be empty. The first two are for those who prepare the
// parameters of blocks: a deferred operation belongs to the block in which the first half came to
// it.
struct SplitWatch {
  std::function<size_t()> block;       // The block of the first half.
  std::function<void(size_t)> before;  // The second half comes to an operation of this block.
  // Counts a gradient from its arrival at a deferred operation to the end of the second half.
  std::function<ActivationBytes::Hold(const c10::Storage&)> hold;
};

// One object for each micro-batch. One thread at a time uses it; both halves run on the thread
// that calls them.
class SplitBackward {
 public:
  // `inputs` are leaf tensors, from which forward computed `outputs`. Those that need no gradient
  // may be among them. `gradients` belong to the outputs and have their shapes. An undefined one,
  // or one of an output that needs none, counts for nothing.
  // Throws Error(invalid_argument) if an input is undefined, is not a leaf or is there twice, or
  // if the gradients do not fit the outputs.
  SplitBackward(const Tensors& outputs, const Tensors& gradients, const Tensors& inputs,
                SplitWatch watch = {});
  ~SplitBackward();
  SplitBackward(SplitBackward&&) noexcept;
  SplitBackward& operator=(SplitBackward&&) noexcept;

  // The first half. Returns a gradient for each input, undefined where it got none; the `grad` of
  // the inputs stays as it was. Parameters of operations that are computed at once get their
  // gradients now. The graph is used up: what the second half does not need is freed while this
  // runs, and no other backward may go through it. Saved tensors that come back into memory stay
  // there if the second half needs them (FirstOfTwoBackwards).
  // Throws Error(invalid_argument) when called again.
  Tensors input_gradients();
  // The second half. Adds to the `grad` of all other parameters, as backward() does, those of the
  // last blocks first. Then everything is freed.
  // Throws Error(invalid_argument) before the first half, and when called again.
  void weight_gradients();

  // The number of operations on the way that also lead to parameters: those whose second kind of
  // gradients is deferred, and those that compute some of it in the first half.
  int deferred() const;
  int at_once() const;
  // Between the halves: the bytes of the gradients that are kept, besides the saved tensors of the
  // deferred operations. Gradients that have memory in common count once.
  int64_t kept_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::pipeline
