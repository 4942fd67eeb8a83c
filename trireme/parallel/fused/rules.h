// The rules of the fused optimizers. There is one rule for each optimizer: its torch types, the
// places of its state tensors, and the way from a step's options to a kernel's. State tensors are
// listed in a fixed order, so that a place has the same meaning on every rank.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <trireme/parallel/fused/kernels.h>
#include <trireme/parallel/layerwise.h>
#include <array>
#include <cmath>
#include <vector>

namespace trireme::fused {

struct SgdRule {
  static constexpr bool kLayerwise = false;
  using State = torch::optim::SGDParamState;
  using Options = torch::optim::SGDOptions;
  using Kernel = Sgd;
  static int tensors(const Options& o) { return o.momentum() != 0 ? 1 : 0; }
  static std::array<at::Tensor, 3> get(const State& s) { return {s.momentum_buffer()}; }
  static void set(State& s, const std::vector<at::Tensor>& t) {
    if (!t.empty()) s.momentum_buffer(t[0]);
  }
  static Kernel begin(State&, const Options& o, bool first) {
    return {o.lr(), o.momentum(), o.dampening(), o.weight_decay(), o.nesterov(), first};
  }
  template <typename T>
  static void run(const Kernel& k, T* p, const T* g, const std::array<T*, 3>& s, int64_t n) {
    fused::update(k, p, g, s[0], n);
  }
};

template <typename TheState, typename TheOptions, bool decoupled>
struct AdamRule {
  static constexpr bool kLayerwise = false;
  using State = TheState;
  using Options = TheOptions;
  using Kernel = Adam;
  static int tensors(const Options& o) { return o.amsgrad() ? 3 : 2; }
  static std::array<at::Tensor, 3> get(const State& s) {
    return {s.exp_avg(), s.exp_avg_sq(), s.max_exp_avg_sq()};
  }
  static void set(State& s, const std::vector<at::Tensor>& t) {
    s.exp_avg(t[0]);
    s.exp_avg_sq(t[1]);
    if (t.size() > 2) s.max_exp_avg_sq(t[2]);
  }
  static Kernel begin(State& s, const Options& o, bool) {
    s.step(s.step() + 1);
    return {o.lr(),
            std::get<0>(o.betas()),
            std::get<1>(o.betas()),
            o.eps(),
            o.weight_decay(),
            decoupled,
            o.amsgrad(),
            s.step()};
  }
  template <typename T>
  static void run(const Kernel& k, T* p, const T* g, const std::array<T*, 3>& s, int64_t n) {
    fused::update(k, p, g, s[0], s[1], s[2], n);
  }
};

struct RmsPropRule {
  static constexpr bool kLayerwise = false;
  using State = torch::optim::RMSpropParamState;
  using Options = torch::optim::RMSpropOptions;
  using Kernel = RmsProp;
  // The tensors are in the order of get(). A later one needs the places of all earlier ones.
  static int tensors(const Options& o) { return o.centered() ? 3 : o.momentum() > 0 ? 2 : 1; }
  static std::array<at::Tensor, 3> get(const State& s) {
    return {s.square_avg(), s.momentum_buffer(), s.grad_avg()};
  }
  static void set(State& s, const std::vector<at::Tensor>& t) {
    s.square_avg(t[0]);
    if (t.size() > 1) s.momentum_buffer(t[1]);
    if (t.size() > 2) s.grad_avg(t[2]);
  }
  static Kernel begin(State& s, const Options& o, bool) {
    s.step(s.step() + 1);
    return {o.lr(), o.alpha(), o.eps(), o.weight_decay(), o.momentum(), o.centered()};
  }
  template <typename T>
  static void run(const Kernel& k, T* p, const T* g, const std::array<T*, 3>& s, int64_t n) {
    fused::update(k, p, g, s[0], s[1], s[2], n);
  }
};

struct AdagradRule {
  static constexpr bool kLayerwise = false;
  using State = torch::optim::AdagradParamState;
  using Options = torch::optim::AdagradOptions;
  using Kernel = Adagrad;
  static int tensors(const Options&) { return 1; }
  static std::array<at::Tensor, 3> get(const State& s) { return {s.sum()}; }
  static void set(State& s, const std::vector<at::Tensor>& t) { s.sum(t[0]); }
  static Kernel begin(State& s, const Options& o, bool) {
    s.step(s.step() + 1);
    return {o.lr(), o.lr_decay(), o.weight_decay(), o.eps(), s.step()};
  }
  template <typename T>
  static void run(const Kernel& k, T* p, const T* g, const std::array<T*, 3>& s, int64_t n) {
    fused::update(k, p, g, s[0], n);
  }
};

// A layerwise rule's kernel also holds the values that become known between measuring and
// updating.
struct LarsRule {
  static constexpr bool kLayerwise = true;
  using State = LarsParamState;
  using Options = LarsOptions;
  struct Kernel {
    Lars lars;
    double trust;
    bool adapts;
  };
  static int tensors(const Options&) { return 1; }
  static std::array<at::Tensor, 3> get(const State& s) { return {s.momentum_buffer()}; }
  static void set(State& s, const std::vector<at::Tensor>& t) { s.momentum_buffer(t[0]); }
  static Kernel begin(State&, const Options& o, bool) {
    return {{o.lr(), o.momentum(), o.weight_decay()}, o.trust(), o.adapt_vectors()};
  }
  static void know_shape(Kernel& k, int64_t dims) {
    k.adapts = k.adapts || dims > 1;
    if (!k.adapts) k.lars.weight_decay = 0;
  }
  template <typename T>
  static Squares measure(const Kernel& k, const T* p, const T* g, const std::array<T*, 3>&,
                         int64_t n) {
    return fused::measure(k.lars, p, g, n);
  }
  static void know_norms(Kernel& k, const Squares& squares) {
    const double weight = std::sqrt(squares.parameter), slope = std::sqrt(squares.direction);
    if (k.adapts && weight > 0 && slope > 0)
      k.lars.lr *= k.trust * weight / (slope + k.lars.weight_decay * weight);
  }
  template <typename T>
  static void run(const Kernel& k, T* p, const T* g, const std::array<T*, 3>& s, int64_t n) {
    fused::update(k.lars, p, g, s[0], n);
  }
};

struct LambRule {
  static constexpr bool kLayerwise = true;
  using State = LambParamState;
  using Options = LambOptions;
  struct Kernel {
    Lamb lamb;
    double rate;
    bool adapts;
  };
  static int tensors(const Options&) { return 2; }
  static std::array<at::Tensor, 3> get(const State& s) { return {s.exp_avg(), s.exp_avg_sq()}; }
  static void set(State& s, const std::vector<at::Tensor>& t) {
    s.exp_avg(t[0]);
    s.exp_avg_sq(t[1]);
  }
  static Kernel begin(State& s, const Options& o, bool) {
    s.step(s.step() + 1);
    return {
        {o.beta1(), o.beta2(), o.eps(), o.weight_decay(), s.step()}, o.lr(), o.adapt_vectors()};
  }
  static void know_shape(Kernel& k, int64_t dims) { k.adapts = k.adapts || dims > 1; }
  template <typename T>
  static Squares measure(const Kernel& k, const T* p, const T* g, const std::array<T*, 3>& s,
                         int64_t n) {
    return fused::advance(k.lamb, p, g, s[0], s[1], n);
  }
  static void know_norms(Kernel& k, const Squares& squares) {
    const double weight = std::sqrt(squares.parameter), direction = std::sqrt(squares.direction);
    if (k.adapts && weight > 0 && direction > 0) k.rate *= weight / direction;
  }
  template <typename T>
  static void run(const Kernel& k, T* p, const T*, const std::array<T*, 3>& s, int64_t n) {
    fused::update(k.lamb, k.rate, p, s[0], s[1], n);
  }
};

}  // namespace trireme::fused
