#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/comm/threads/reduce_kernel.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

namespace trireme::comm {
namespace {

// Small enough that the running fold stays in the first-level cache while the sources stream past.
constexpr int64_t kBlock = 2048;

template <typename T>
struct AccumulatorOf {
  using type = T;
};
template <>
struct AccumulatorOf<c10::Half> {
  using type = float;
};
template <>
struct AccumulatorOf<c10::BFloat16> {
  using type = float;
};

template <typename A>
A pick(A a, A b, bool take_b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return take_b ? b : a;
}

// `target` may be `a` or `b`: each element is read and written at the same index.
template <typename T>
void add(T* target, const T* a, const T* b, int64_t count) {
#ifdef __clang__
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (int64_t i = 0; i < count; ++i) target[i] = static_cast<T>(a[i] + b[i]);
}

// For element types that accumulate in their own type.
template <typename T>
void sum_plainly(T* target, std::span<const void* const> sources, int64_t first, int64_t last) {
  std::array<T, kBlock> total;
  for (int64_t start = first; start < last; start += kBlock) {
    const int64_t count = std::min(kBlock, last - start);
    const T* sum = static_cast<const T*>(sources[0]) + start;
    for (size_t k = 1; k < sources.size(); ++k) {
      T* into = k + 1 == sources.size() ? target + start : total.data();
      add(into, sum, static_cast<const T*>(sources[k]) + start, count);
      sum = into;
    }
  }
}

template <typename T>
void fold_typed(Fold fold, T* target, std::span<const void* const> sources, int64_t first,
                int64_t last) {
  using A = typename AccumulatorOf<T>::type;
  if constexpr (std::is_same_v<A, T>) {
    if (fold == Fold::sum && sources.size() > 1) return sum_plainly(target, sources, first, last);
  }
  std::array<A, kBlock> total;
  for (int64_t start = first; start < last; start += kBlock) {
    const int64_t count = std::min(kBlock, last - start);
    const T* source = static_cast<const T*>(sources[0]) + start;
    for (int64_t i = 0; i < count; ++i) total[i] = static_cast<A>(source[i]);
    for (size_t k = 1; k < sources.size(); ++k) {
      source = static_cast<const T*>(sources[k]) + start;
      if (fold == Fold::sum) {
        for (int64_t i = 0; i < count; ++i)
          total[i] = static_cast<A>(total[i] + static_cast<A>(source[i]));
      } else {
        for (int64_t i = 0; i < count; ++i) {
          const A value = static_cast<A>(source[i]);
          total[i] =
              pick(total[i], value, fold == Fold::max ? value > total[i] : value < total[i]);
        }
      }
    }
    T* out = target + start;
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(total[i]);
  }
}

}  // namespace

void fold_range(plan::DType dtype, Fold fold, void* target, std::span<const void* const> sources,
                int64_t first, int64_t last) {
  switch (dtype) {
    case plan::DType::float32:
      return fold_typed(fold, static_cast<float*>(target), sources, first, last);
    case plan::DType::float64:
      return fold_typed(fold, static_cast<double*>(target), sources, first, last);
    case plan::DType::float16:
      return fold_typed(fold, static_cast<c10::Half*>(target), sources, first, last);
    case plan::DType::bfloat16:
      return fold_typed(fold, static_cast<c10::BFloat16*>(target), sources, first, last);
    case plan::DType::int32:
      return fold_typed(fold, static_cast<int32_t*>(target), sources, first, last);
    case plan::DType::int64:
      return fold_typed(fold, static_cast<int64_t*>(target), sources, first, last);
    case plan::DType::uint8:
      return fold_typed(fold, static_cast<uint8_t*>(target), sources, first, last);
    default:  // It is only stored: to_plan() refuses it.
      throw Error(ErrorCode::internal, "comm",
                  fmt::format("tensors of type {} cannot be reduced", plan::to_string(dtype)));
  }
}

}  // namespace trireme::comm
