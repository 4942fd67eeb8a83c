// Each template is inlined into plain functions for float and double, which the compiler clones.
#include <trireme/base/clones.h>
#include <trireme/parallel/fused/kernels.h>
#include <algorithm>
#include <cmath>

namespace trireme::fused {
namespace {

template <typename T>
TRIREME_INLINE void sgd(const Sgd& rule, T* __restrict p, const T* __restrict g, T* __restrict m,
                        int64_t n) {
  const T lr = static_cast<T>(rule.lr), mu = static_cast<T>(rule.momentum),
          keep = static_cast<T>(1 - rule.dampening);
  const T decay = static_cast<T>(rule.weight_decay);
  if (rule.momentum == 0) {
    for (int64_t i = 0; i < n; ++i) p[i] -= lr * (g[i] + decay * p[i]);
  } else if (rule.first) {
    for (int64_t i = 0; i < n; ++i) {
      const T slope = g[i] + decay * p[i];
      m[i] = slope;
      p[i] -= lr * (rule.nesterov ? slope + mu * slope : slope);
    }
  } else if (rule.nesterov) {
    for (int64_t i = 0; i < n; ++i) {
      const T slope = g[i] + decay * p[i];
      m[i] = mu * m[i] + keep * slope;
      p[i] -= lr * (slope + mu * m[i]);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      m[i] = mu * m[i] + keep * (g[i] + decay * p[i]);
      p[i] -= lr * m[i];
    }
  }
}

template <typename T>
TRIREME_INLINE void adam(const Adam& rule, T* __restrict p, const T* __restrict g, T* __restrict m,
                         T* __restrict v, T* __restrict largest, int64_t n) {
  const double correction1 = 1 - std::pow(rule.beta1, static_cast<double>(rule.step));
  const double correction2 = 1 - std::pow(rule.beta2, static_cast<double>(rule.step));
  const T b1 = static_cast<T>(rule.beta1), b2 = static_cast<T>(rule.beta2),
          c1 = static_cast<T>(1 - rule.beta1), c2 = static_cast<T>(1 - rule.beta2);
  const T rate = static_cast<T>(rule.lr / correction1),
          root = static_cast<T>(std::sqrt(correction2)), eps = static_cast<T>(rule.eps);
  const T coupled = static_cast<T>(rule.decoupled ? 0 : rule.weight_decay);
  const T shrink = static_cast<T>(rule.decoupled ? 1 - rule.lr * rule.weight_decay : 1);
  for (int64_t i = 0; i < n; ++i) {
    const T slope = g[i] + coupled * p[i];
    m[i] = b1 * m[i] + c1 * slope;
    v[i] = b2 * v[i] + c2 * slope * slope;
    T square = v[i];
    if (rule.amsgrad) {
      largest[i] = largest[i] > square ? largest[i] : square;
      square = largest[i];
    }
    p[i] = shrink * p[i] - rate * (m[i] / (std::sqrt(square) / root + eps));
  }
}

template <typename T>
TRIREME_INLINE void rms_prop(const RmsProp& rule, T* __restrict p, const T* __restrict g,
                             T* __restrict square, T* __restrict m, T* __restrict average,
                             int64_t n) {
  const T lr = static_cast<T>(rule.lr), alpha = static_cast<T>(rule.alpha),
          rest = static_cast<T>(1 - rule.alpha);
  const T eps = static_cast<T>(rule.eps), decay = static_cast<T>(rule.weight_decay),
          mu = static_cast<T>(rule.momentum);
  const bool heavy = rule.momentum > 0;
  for (int64_t i = 0; i < n; ++i) {
    const T slope = g[i] + decay * p[i];
    square[i] = alpha * square[i] + rest * slope * slope;
    T spread = square[i];
    if (rule.centered) {
      average[i] = alpha * average[i] + rest * slope;
      spread -= average[i] * average[i];
    }
    const T scaled = slope / (std::sqrt(spread) + eps);
    if (heavy) {
      m[i] = mu * m[i] + scaled;
      p[i] -= lr * m[i];
    } else {
      p[i] -= lr * scaled;
    }
  }
}

template <typename T>
TRIREME_INLINE void adagrad(const Adagrad& rule, T* __restrict p, const T* __restrict g,
                            T* __restrict sum, int64_t n) {
  const T rate =
      static_cast<T>(rule.lr / (1 + static_cast<double>(rule.step - 1) * rule.lr_decay));
  const T eps = static_cast<T>(rule.eps), decay = static_cast<T>(rule.weight_decay);
  for (int64_t i = 0; i < n; ++i) {
    const T slope = g[i] + decay * p[i];
    sum[i] += slope * slope;
    p[i] -= rate * (slope / (std::sqrt(sum[i]) + eps));
  }
}

template <typename T>
TRIREME_INLINE void lars(const Lars& rule, T* __restrict p, const T* __restrict g, T* __restrict m,
                         int64_t n) {
  const T lr = static_cast<T>(rule.lr), mu = static_cast<T>(rule.momentum),
          decay = static_cast<T>(rule.weight_decay);
  for (int64_t i = 0; i < n; ++i) {
    m[i] = mu * m[i] + lr * (g[i] + decay * p[i]);
    p[i] -= m[i];
  }
}

// Eight running sums, so that the loop fills a vector. The order depends on the index alone.
template <typename T, typename Value>
TRIREME_INLINE double sum_over(int64_t n, Value value) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int64_t lane = 0; lane < 8; ++lane) {
      const double x = static_cast<double>(value(i + lane));
      sums[lane] += x * x;
    }
  for (; i < n; ++i) {
    const double x = static_cast<double>(value(i));
    sums[i % 8] += x * x;
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

template <typename T>
struct LambDirection {
  T correction1, correction2, eps, decay;
  explicit LambDirection(const Lamb& rule)
      : correction1(static_cast<T>(1 - std::pow(rule.beta1, static_cast<double>(rule.step)))),
        correction2(static_cast<T>(1 - std::pow(rule.beta2, static_cast<double>(rule.step)))),
        eps(static_cast<T>(rule.eps)),
        decay(static_cast<T>(rule.weight_decay)) {}
  TRIREME_INLINE T operator()(T p, T m, T v) const {
    return (m / correction1) / (std::sqrt(v / correction2) + eps) + decay * p;
  }
};

template <typename T>
TRIREME_INLINE Squares lamb_advance(const Lamb& rule, const T* __restrict p, const T* __restrict g,
                                    T* __restrict m, T* __restrict v, int64_t n) {
  const T b1 = static_cast<T>(rule.beta1), b2 = static_cast<T>(rule.beta2),
          c1 = static_cast<T>(1 - rule.beta1), c2 = static_cast<T>(1 - rule.beta2);
  for (int64_t i = 0; i < n; ++i) {
    m[i] = b1 * m[i] + c1 * g[i];
    v[i] = b2 * v[i] + c2 * g[i] * g[i];
  }
  const LambDirection<T> direction(rule);
  return {sum_over<T>(n, [&](int64_t i) { return p[i]; }),
          sum_over<T>(n, [&](int64_t i) { return direction(p[i], m[i], v[i]); })};
}

template <typename T>
TRIREME_INLINE void lamb(const Lamb& rule, double rate, T* __restrict p, const T* __restrict m,
                         const T* __restrict v, int64_t n) {
  const LambDirection<T> direction(rule);
  const T step = static_cast<T>(rate);
  for (int64_t i = 0; i < n; ++i) p[i] -= step * direction(p[i], m[i], v[i]);
}

template <typename T>
TRIREME_INLINE void sum_of(std::span<const T* const> sources, double factor, T* target,
                           int64_t n) {
  const T scale = static_cast<T>(factor);
  if (sources.size() == 1) {
    const T* const a = sources[0];
    for (int64_t i = 0; i < n; ++i) target[i] = scale * a[i];
    return;
  }
  const T *const a = sources[0], *const b = sources[1];
  if (sources.size() == 2) {
    for (int64_t i = 0; i < n; ++i) target[i] = scale * (a[i] + b[i]);
    return;
  }
  // Works in blocks that stay in the first-level cache while the sources stream past.
  constexpr int64_t kBlock = 1024;
  T total[kBlock];
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t count = std::min(kBlock, n - start);
    for (int64_t i = 0; i < count; ++i) total[i] = a[start + i] + b[start + i];
    for (size_t k = 2; k < sources.size(); ++k) {
      const T* const c = sources[k] + start;
      for (int64_t i = 0; i < count; ++i) total[i] += c[i];
    }
    for (int64_t i = 0; i < count; ++i) target[start + i] = scale * total[i];
  }
}

template <typename T>
TRIREME_INLINE void weighted_sum_of(std::span<const T* const> sources,
                                    std::span<const double> weights, T* target, int64_t n) {
  const T *const a = sources[0], of_a = static_cast<T>(weights[0]);
  if (sources.size() == 1) {
    for (int64_t i = 0; i < n; ++i) target[i] = of_a * a[i];
    return;
  }
  const T *const b = sources[1], of_b = static_cast<T>(weights[1]);
  if (sources.size() == 2) {
    for (int64_t i = 0; i < n; ++i) target[i] = of_a * a[i] + of_b * b[i];
    return;
  }
  constexpr int64_t kBlock = 1024;
  T total[kBlock];
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t count = std::min(kBlock, n - start);
    for (int64_t i = 0; i < count; ++i) total[i] = of_a * a[start + i] + of_b * b[start + i];
    for (size_t k = 2; k < sources.size(); ++k) {
      const T* const c = sources[k] + start;
      const T of_c = static_cast<T>(weights[k]);
      for (int64_t i = 0; i < count; ++i) total[i] += of_c * c[i];
    }
    std::copy(total, total + count, target + start);
  }
}

}  // namespace

#define TRIREME_KERNELS(T)                                                                     \
  TRIREME_CLONES static void sgd_of(const Sgd& r, T* p, const T* g, T* m, int64_t n) {         \
    sgd<T>(r, p, g, m, n);                                                                     \
  }                                                                                            \
  TRIREME_CLONES static void adam_of(const Adam& r, T* p, const T* g, T* m, T* v, T* x,        \
                                     int64_t n) {                                              \
    adam<T>(r, p, g, m, v, x, n);                                                              \
  }                                                                                            \
  TRIREME_CLONES static void rms_prop_of(const RmsProp& r, T* p, const T* g, T* s, T* m, T* a, \
                                         int64_t n) {                                          \
    rms_prop<T>(r, p, g, s, m, a, n);                                                          \
  }                                                                                            \
  TRIREME_CLONES static void adagrad_of(const Adagrad& r, T* p, const T* g, T* s, int64_t n) { \
    adagrad<T>(r, p, g, s, n);                                                                 \
  }                                                                                            \
  TRIREME_CLONES static void lars_of(const Lars& r, T* p, const T* g, T* m, int64_t n) {       \
    lars<T>(r, p, g, m, n);                                                                    \
  }                                                                                            \
  TRIREME_CLONES static Squares lamb_advance_of(const Lamb& r, const T* p, const T* g, T* m,   \
                                                T* v, int64_t n) {                             \
    return lamb_advance<T>(r, p, g, m, v, n);                                                  \
  }                                                                                            \
  TRIREME_CLONES static void lamb_of(const Lamb& r, double rate, T* p, const T* m, const T* v, \
                                     int64_t n) {                                              \
    lamb<T>(r, rate, p, m, v, n);                                                              \
  }                                                                                            \
  TRIREME_CLONES static void sum_scaled_of(std::span<const T* const> s, double f, T* t,        \
                                           int64_t n) {                                        \
    sum_of<T>(s, f, t, n);                                                                     \
  }                                                                                            \
  TRIREME_CLONES static void sum_weighted_of(std::span<const T* const> s,                      \
                                             std::span<const double> w, T* t, int64_t n) {     \
    weighted_sum_of<T>(s, w, t, n);                                                            \
  }                                                                                            \
  TRIREME_CLONES static double squares_of(const T* x, int64_t n) {                             \
    return sum_over<T>(n, [&](int64_t i) { return x[i]; });                                    \
  }                                                                                            \
  template <>                                                                                  \
  void update(const Sgd& r, T* p, const T* g, T* m, int64_t n) {                               \
    sgd_of(r, p, g, m, n);                                                                     \
  }                                                                                            \
  template <>                                                                                  \
  void update(const Adam& r, T* p, const T* g, T* m, T* v, T* x, int64_t n) {                  \
    adam_of(r, p, g, m, v, x, n);                                                              \
  }                                                                                            \
  template <>                                                                                  \
  void update(const RmsProp& r, T* p, const T* g, T* s, T* m, T* a, int64_t n) {               \
    rms_prop_of(r, p, g, s, m, a, n);                                                          \
  }                                                                                            \
  template <>                                                                                  \
  void update(const Adagrad& r, T* p, const T* g, T* s, int64_t n) {                           \
    adagrad_of(r, p, g, s, n);                                                                 \
  }                                                                                            \
  template <>                                                                                  \
  Squares measure(const Lars&, const T* p, const T* g, int64_t n) {                            \
    return {squares_of(p, n), squares_of(g, n)};                                               \
  }                                                                                            \
  template <>                                                                                  \
  void update(const Lars& r, T* p, const T* g, T* m, int64_t n) {                              \
    lars_of(r, p, g, m, n);                                                                    \
  }                                                                                            \
  template <>                                                                                  \
  Squares advance(const Lamb& r, const T* p, const T* g, T* m, T* v, int64_t n) {              \
    return lamb_advance_of(r, p, g, m, v, n);                                                  \
  }                                                                                            \
  template <>                                                                                  \
  void update(const Lamb& r, double rate, T* p, const T* m, const T* v, int64_t n) {           \
    lamb_of(r, rate, p, m, v, n);                                                              \
  }                                                                                            \
  template <>                                                                                  \
  void sum_scaled(std::span<const T* const> s, double f, T* t, int64_t n) {                    \
    sum_scaled_of(s, f, t, n);                                                                 \
  }                                                                                            \
  template <>                                                                                  \
  void sum_weighted(std::span<const T* const> s, std::span<const double> w, T* t, int64_t n) { \
    sum_weighted_of(s, w, t, n);                                                               \
  }                                                                                            \
  template <>                                                                                  \
  double sum_of_squares(const T* x, int64_t n) {                                               \
    return squares_of(x, n);                                                                   \
  }
TRIREME_KERNELS(float)
TRIREME_KERNELS(double)
#undef TRIREME_KERNELS

}  // namespace trireme::fused
