// The arithmetic of row_optimizer.h. No torch. Rows lie far apart, so the next ones are fetched
// while one is updated.
#include <trireme/base/clones.h>
#include <trireme/parallel/servers/tables/row_optimizer.h>
#include <algorithm>
#include <cmath>
#include <cstring>

namespace trireme::servers {
namespace {

constexpr size_t kRowsAhead = 10;
constexpr int64_t kFloatsOfALine = 16;

TRIREME_INLINE void fetch_row(const float* row, int64_t floats) {
  for (int64_t i = 0; i < floats; i += kFloatsOfALine) __builtin_prefetch(row + i);
  __builtin_prefetch(row + floats - 1);  // A row may end in one line more.
}

struct RowSgd {
  float lr;
  explicit RowSgd(const RowOptimizer& o) : lr(static_cast<float>(o.lr)) {}
  TRIREME_INLINE void operator()(float* __restrict w, const float* __restrict g, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) w[i] -= lr * g[i];
  }
};

struct ValueAdagrad {
  float lr, eps;
  explicit ValueAdagrad(const RowOptimizer& o)
      : lr(static_cast<float>(o.lr)), eps(static_cast<float>(o.eps)) {}
  TRIREME_INLINE void operator()(float* __restrict w, const float* __restrict g, int64_t n) const {
    float* __restrict const sum = w + n;
    for (int64_t i = 0; i < n; ++i) {
      sum[i] += g[i] * g[i];
      w[i] -= lr * (g[i] / (std::sqrt(sum[i]) + eps));
    }
  }
};

struct RowAdagrad {
  float lr, eps;
  explicit RowAdagrad(const RowOptimizer& o)
      : lr(static_cast<float>(o.lr)), eps(static_cast<float>(o.eps)) {}
  TRIREME_INLINE void operator()(float* __restrict w, const float* __restrict g, int64_t n) const {
    // Eight sums, so that the loop fills a vector. The order depends on the index alone.
    float sums[8] = {};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
      for (int64_t lane = 0; lane < 8; ++lane) sums[lane] += g[i + lane] * g[i + lane];
    for (; i < n; ++i) sums[i % 8] += g[i] * g[i];
    const float square =
        ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    w[n] += square / static_cast<float>(n);
    const float rate = lr / (std::sqrt(w[n]) + eps);
    for (int64_t k = 0; k < n; ++k) w[k] -= rate * g[k];
  }
};

struct RowAdam {
  double lr, beta1, beta2;
  float eps;
  explicit RowAdam(const RowOptimizer& o)
      : lr(o.lr), beta1(o.beta1), beta2(o.beta2), eps(static_cast<float>(o.eps)) {}
  TRIREME_INLINE void operator()(float* __restrict w, const float* __restrict g, int64_t n) const {
    float* __restrict const m = w + n, * __restrict const v = m + n, * const count = v + n;
    // Behind 2^24 steps the count stays, where the corrections have been 1 for long.
    const double step = static_cast<double>(*count += 1);
    const auto rate = static_cast<float>(lr / (1 - std::pow(beta1, step))),
               root = static_cast<float>(std::sqrt(1 - std::pow(beta2, step)));
    const auto b1 = static_cast<float>(beta1), b2 = static_cast<float>(beta2),
               c1 = static_cast<float>(1 - beta1), c2 = static_cast<float>(1 - beta2);
    for (int64_t i = 0; i < n; ++i) {
      m[i] = b1 * m[i] + c1 * g[i];
      v[i] = b2 * v[i] + c2 * g[i] * g[i];
      w[i] -= rate * (m[i] / (std::sqrt(v[i]) / root + eps));
    }
  }
};

struct Ftrl {
  float inverse, beta, l1, l2;
  explicit Ftrl(const RowOptimizer& o)
      : inverse(static_cast<float>(1 / o.lr)),
        beta(static_cast<float>(o.beta)),
        l1(static_cast<float>(o.l1)),
        l2(static_cast<float>(o.l2)) {}
  TRIREME_INLINE void operator()(float* __restrict w, const float* __restrict g, int64_t n) const {
    float* __restrict const z = w + n, * __restrict const squares = z + n;
    for (int64_t i = 0; i < n; ++i) {
      const float before = std::sqrt(squares[i]);
      squares[i] += g[i] * g[i];
      const float now = std::sqrt(squares[i]);
      z[i] += g[i] - (now - before) * inverse * w[i];
      const float over = std::copysign(std::max(std::fabs(z[i]) - l1, 0.0F), z[i]);
      w[i] = -over / ((beta + now) * inverse + l2);
    }
  }
};

template <typename Rule>
TRIREME_INLINE void update_each(const RowOptimizer& optimizer, float* const* rows,
                                const float* const* gradients, size_t count, int64_t width,
                                int64_t floats) {
  const Rule rule(optimizer);
  for (size_t i = 0; i < std::min(kRowsAhead, count); ++i) fetch_row(rows[i], floats);
  for (size_t i = 0; i < count; ++i) {
    if (i + kRowsAhead < count) fetch_row(rows[i + kRowsAhead], floats);
    rule(rows[i], gradients[i], width);
  }
}

}  // namespace

#define TRIREME_ROW_RULE(name, Rule)                                                          \
  TRIREME_CLONES static void name(const RowOptimizer& o, float* const* rows,                  \
                                  const float* const* gradients, size_t count, int64_t width, \
                                  int64_t floats) {                                           \
    update_each<Rule>(o, rows, gradients, count, width, floats);                              \
  }
TRIREME_ROW_RULE(sgd_of_rows, RowSgd)
TRIREME_ROW_RULE(adagrad_of_values, ValueAdagrad)
TRIREME_ROW_RULE(adagrad_of_rows, RowAdagrad)
TRIREME_ROW_RULE(adam_of_rows, RowAdam)
TRIREME_ROW_RULE(ftrl_of_rows, Ftrl)
#undef TRIREME_ROW_RULE

void update_rows(const RowOptimizer& optimizer, float* const* rows, const float* const* gradients,
                 size_t count, int64_t width) {
  const int64_t floats = floats_of_row(optimizer.rule, width);
  switch (optimizer.rule) {
    case RowRule::sgd: return sgd_of_rows(optimizer, rows, gradients, count, width, floats);
    case RowRule::adagrad:
      return adagrad_of_values(optimizer, rows, gradients, count, width, floats);
    case RowRule::row_adagrad:
      return adagrad_of_rows(optimizer, rows, gradients, count, width, floats);
    case RowRule::adam: return adam_of_rows(optimizer, rows, gradients, count, width, floats);
    case RowRule::ftrl: return ftrl_of_rows(optimizer, rows, gradients, count, width, floats);
  }
}

void begin_row(const RowOptimizer& optimizer, float* row, int64_t width) {
  float* const state = row + width;
  const int64_t floats = floats_of_row(optimizer.rule, width) - width;
  const bool has_sum =
      optimizer.rule == RowRule::adagrad || optimizer.rule == RowRule::row_adagrad;
  std::fill_n(state, floats, has_sum ? static_cast<float>(optimizer.first_sum) : 0.0F);
  if (optimizer.rule != RowRule::ftrl) return;
  // The z from which algorithm 1 computes the values that are there.
  for (int64_t i = 0; i < width; ++i) {
    const double w = row[i];
    const double z = w * (optimizer.beta / optimizer.lr + optimizer.l2);
    state[i] = w == 0 ? 0.0F : static_cast<float>(-z - std::copysign(optimizer.l1, w));
  }
}

void gather_rows(const float* const* rows, size_t count, int64_t width, float* to) {
  const auto bytes = static_cast<size_t>(width) * sizeof(float);
  for (size_t i = 0; i < std::min(2 * kRowsAhead, count); ++i) fetch_row(rows[i], width);
  for (size_t i = 0; i < count; ++i) {
    if (i + 2 * kRowsAhead < count) fetch_row(rows[i + 2 * kRowsAhead], width);
    std::memcpy(to, rows[i], bytes);
    to += width;
  }
}

}  // namespace trireme::servers
