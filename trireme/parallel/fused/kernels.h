// The arithmetic of optimizers on a range of one parameter, for float and double. No torch.
//
// Every element is computed by itself and without contraction to fused multiply-adds, so the
// bits do not depend on how a parameter is cut into ranges. All pointers point to the
// range's first element.
#pragma once
#include <cstdint>
#include <span>

namespace trireme::fused {

// torch::optim::SGD: momentum, dampening (Sutskever et al. 2013), Nesterov's variant.
struct Sgd {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool first = false;  // The momentum buffer holds nothing yet and becomes the gradient.
};
// torch::optim::Adam (Kingma, Ba 2015), amsgrad (Reddi et al. 2018), AdamW's decoupled decay
// (Loshchilov, Hutter 2019).
struct Adam {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool decoupled = false, amsgrad = false;
  int64_t step = 1;
};
// torch::optim::RMSprop (Hinton 2012; centered: Graves 2013).
struct RmsProp {
  double lr = 0, alpha = 0, eps = 0, weight_decay = 0, momentum = 0;
  bool centered = false;
};
// torch::optim::Adagrad (Duchi et al. 2011).
struct Adagrad {
  double lr = 0, lr_decay = 0, weight_decay = 0, eps = 0;
  int64_t step = 1;
};
// LARS (You, Gitman, Ginsburg 2017, algorithm 1). lr is already multiplied by the
// layer's trust ratio.
struct Lars {
  double lr = 0, momentum = 0, weight_decay = 0;
};
// LAMB (You et al. 2020, algorithm 2).
struct Lamb {
  double beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  int64_t step = 1;
};
// The sums of squares over a range.
struct Squares {
  double parameter = 0, direction = 0;
};

// Buffers that a rule does not use may be null.
template <typename T>
void update(const Sgd& rule, T* parameter, const T* gradient, T* momentum, int64_t count);
template <typename T>
void update(const Adam& rule, T* parameter, const T* gradient, T* average, T* average_square,
            T* largest_square, int64_t count);
template <typename T>
void update(const RmsProp& rule, T* parameter, const T* gradient, T* square, T* momentum,
            T* average, int64_t count);
template <typename T>
void update(const Adagrad& rule, T* parameter, const T* gradient, T* sum, int64_t count);
template <typename T>
Squares measure(const Lars& rule, const T* parameter, const T* gradient, int64_t count);
template <typename T>
void update(const Lars& rule, T* parameter, const T* gradient, T* momentum, int64_t count);
// Advances the averages and returns the sums of squares of parameter and direction.
template <typename T>
Squares advance(const Lamb& rule, const T* parameter, const T* gradient, T* average,
                T* average_square, int64_t count);
// Steps along the direction by `rate` (learning rate x trust ratio).
template <typename T>
void update(const Lamb& rule, double rate, T* parameter, const T* average, const T* average_square,
            int64_t count);

// target[i] = factor * (sources[0][i] + sources[1][i] + ...), added in that order. `target` may be
// one of the sources.
template <typename T>
void sum_scaled(std::span<const T* const> sources, double factor, T* target, int64_t count);
// target[i] = weights[0] * sources[0][i] + weights[1] * sources[1][i] + ..., added in that order.
// `target` may be one of the sources.
template <typename T>
void sum_weighted(std::span<const T* const> sources, std::span<const double> weights, T* target,
                  int64_t count);
template <typename T>
double sum_of_squares(const T* values, int64_t count);

}  // namespace trireme::fused
