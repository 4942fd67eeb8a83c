// This file is compiled without contraction to fused multiply-adds and uses a fixed number of
// partial sums. Thus the clones for all generations of processors compute the same bits: replicas
// may run on different processors.
#include <trireme/base/clones.h>
#include <trireme/parallel/compression/kernels.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace trireme::compression {
namespace {

constexpr int kLanes = 32;  // The partial sums of a dot product.
constexpr uint32_t kMagnitude = 0x7fffffff, kSign = 0x80000000;
constexpr int kHalfShift = 13;  // A float's mantissa has so many more bits than a float16's.
constexpr float kSmallestNormalHalf = 6.103515625e-05F;  // 2^-14

TRIREME_INLINE uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
TRIREME_INLINE float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

TRIREME_INLINE uint16_t bf16_of(float value) {
  const uint32_t bits = bits_of(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
TRIREME_INLINE float from_bf16_code(uint16_t code) {
  return float_of(static_cast<uint32_t>(code) << 16);
}

// Below the smallest normal number, the float addition itself rounds to multiples of 2^-24.
TRIREME_INLINE uint16_t fp16_of(float value) {
  const uint32_t bits = bits_of(value), magnitude = bits & kMagnitude, sign = (bits & kSign) >> 16;
  const uint32_t rebias = static_cast<uint32_t>(15 - 127) << 23;
  const uint32_t normal =
      (magnitude + rebias + 0xfff + ((magnitude >> kHalfShift) & 1)) >> kHalfShift;
  const uint32_t small = bits_of(float_of(magnitude) + 0.5F) - bits_of(0.5F);
  return static_cast<uint16_t>(sign |
                               (float_of(magnitude) < kSmallestNormalHalf ? small : normal));
}
// A multiplication corrects the exponent; numbers below the smallest normal one need it too.
TRIREME_INLINE float from_fp16_code(uint16_t code) {
  const uint32_t bits = code;
  const float magnitude =
      float_of((bits & 0x7fff) << kHalfShift) * float_of((127 + 127 - 15) << 23);
  return float_of(bits_of(magnitude) | ((bits & 0x8000) << 16));
}

// Adding and subtracting 1.5 x 2^23 leaves the nearest whole number, ties to even.
TRIREME_INLINE float to_whole(float value) {
  constexpr float kMagic = 12582912.0F;
  return (value + kMagic) - kMagic;
}

template <typename T>
TRIREME_INLINE T dot(const T* __restrict a, const T* __restrict b, int64_t count) {
  std::array<T, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  for (int lane = 0; i < count; ++i, ++lane) lanes[lane] += a[i] * b[i];
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

template <typename T>
TRIREME_INLINE void project_rows(const Thin<T>& thin, const T* __restrict error) {
  for (int64_t i = 0; i < thin.rows; ++i) {
    T* const __restrict row = thin.matrix + i * thin.columns;
    const T* const __restrict left = error + i * thin.columns;
    for (int64_t j = 0; j < thin.columns; ++j) row[j] += left[j];
    for (int64_t k = 0; k < thin.rank; ++k)
      thin.p[k * thin.rows + i] = dot(row, thin.q + k * thin.columns, thin.columns);
  }
}

// Four rows at a time, so that Q is read and written a quarter as often.
template <typename T>
TRIREME_INLINE void project_columns(const Thin<T>& thin) {
  const int64_t n = thin.columns;
  std::fill_n(thin.q, thin.rank * n, T(0));
  int64_t i = 0;
  for (; i + 4 <= thin.rows; i += 4) {
    const T* const __restrict row = thin.matrix + i * n;
    for (int64_t k = 0; k < thin.rank; ++k) {
      const T* const p = thin.p + k * thin.rows + i;
      const T a = p[0], b = p[1], c = p[2], d = p[3];
      T* const __restrict q = thin.q + k * n;
      for (int64_t j = 0; j < n; ++j)
        q[j] += (a * row[j] + b * row[n + j]) + (c * row[2 * n + j] + d * row[3 * n + j]);
    }
  }
  for (; i < thin.rows; ++i)
    for (int64_t k = 0; k < thin.rank; ++k)
      for (int64_t j = 0; j < n; ++j)
        thin.q[k * n + j] += thin.p[k * thin.rows + i] * thin.matrix[i * n + j];
}

template <typename T>
TRIREME_INLINE void restore_rows(const Thin<T>& thin, T fraction, T* __restrict error) {
  const int64_t n = thin.columns;
  for (int64_t i = 0; i < thin.rows; ++i) {
    T* const __restrict row = thin.matrix + i * n;
    T* const __restrict left = error + i * n;
    std::copy_n(row, n, left);
    for (int64_t k = 0; k < thin.rank; ++k) {
      const T p = thin.p[k * thin.rows + i];
      const T* const __restrict q = thin.q + k * n;
      if (k == 0)
        for (int64_t j = 0; j < n; ++j) row[j] = p * q[j];
      else
        for (int64_t j = 0; j < n; ++j) row[j] += p * q[j];
    }
    for (int64_t j = 0; j < n; ++j) left[j] -= fraction * row[j];
  }
}

// Adds in double, so that neither tiny nor huge gradients leave its range.
template <typename T>
double product_of(const T* a, const T* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}
template <typename T>
double length_of(const T* column, int64_t rows) {
  return std::sqrt(product_of(column, column, rows));
}

// Removes the directions of the earlier columns from column k. Returns the length that is left.
template <typename T>
double leave_own_direction(const Thin<T>& thin, int64_t k) {
  T* const column = thin.p + k * thin.rows;
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t before = 0; before < k; ++before) {
      const T* const other = thin.p + before * thin.rows;
      const T along = static_cast<T>(product_of(column, other, thin.rows));
      for (int64_t i = 0; i < thin.rows; ++i) column[i] -= along * other[i];
    }
  }
  return length_of(column, thin.rows);
}

template <typename T>
void orthogonalise_columns(const Thin<T>& thin) {
  constexpr double kRounding = 16 * std::numeric_limits<T>::epsilon();
  for (int64_t k = 0; k < thin.rank; ++k) {
    T* const column = thin.p + k * thin.rows;
    const double whole = length_of(column, thin.rows);
    double length = leave_own_direction(thin, k);
    if (length <= whole * kRounding) {
      // At least one of the unit vectors has so much of its length outside the k
      // earlier directions.
      const double enough =
          std::sqrt(static_cast<double>(thin.rows - k) / static_cast<double>(2 * thin.rows));
      length = 0;
      for (int64_t i = 0; i < thin.rows && length < enough; ++i) {
        std::fill_n(column, thin.rows, T(0));
        column[i] = 1;
        length = leave_own_direction(thin, k);
      }
    }
    for (int64_t i = 0; i < thin.rows; ++i)
      column[i] = static_cast<T>(static_cast<double>(column[i]) / length);
  }
}

// As whole numbers, magnitudes have the same order as floats, and their maximum needs no
// special case for NaN.
TRIREME_CLONES uint32_t largest_of(const float* values, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, bits_of(values[i]) & kMagnitude);
  return largest;
}
TRIREME_CLONES uint64_t largest_of(const double* values, int64_t count) {
  uint64_t largest = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<uint64_t>(values[i]) << 1);
  return largest >> 1;
}

}  // namespace

bool is_finite(const float* values, int64_t count) {
  return largest_of(values, count) < bits_of(std::numeric_limits<float>::infinity());
}
bool is_finite(const double* values, int64_t count) {
  return largest_of(values, count) <
         std::bit_cast<uint64_t>(std::numeric_limits<double>::infinity());
}
float largest_magnitude(const float* values, int64_t count) {
  return float_of(largest_of(values, count));
}

TRIREME_CLONES void to_bf16(const float* __restrict values, int64_t count,
                            uint16_t* __restrict codes, float* __restrict left) {
  for (int64_t i = 0; i < count; ++i) codes[i] = bf16_of(values[i]);
  if (left)
    for (int64_t i = 0; i < count; ++i) left[i] = values[i] - from_bf16_code(codes[i]);
}
TRIREME_CLONES void from_bf16(const uint16_t* __restrict codes, int64_t count,
                              float* __restrict values) {
  for (int64_t i = 0; i < count; ++i) values[i] = from_bf16_code(codes[i]);
}

TRIREME_CLONES void to_fp16(const float* __restrict values, int64_t count, float scale,
                            uint16_t* __restrict codes, float* __restrict left) {
  const float by = 1 / scale;
  for (int64_t i = 0; i < count; ++i) codes[i] = fp16_of(values[i] * by);
  if (left)
    for (int64_t i = 0; i < count; ++i) left[i] = values[i] - from_fp16_code(codes[i]) * scale;
}
TRIREME_CLONES void from_fp16(const uint16_t* __restrict codes, int64_t count, float scale,
                              float* __restrict values) {
  for (int64_t i = 0; i < count; ++i) values[i] = from_fp16_code(codes[i]) * scale;
}

TRIREME_CLONES void to_int8(const float* __restrict values, int64_t count, float scale,
                            int8_t* __restrict codes, float* __restrict left) {
  const float by = 1 / scale;
  for (int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<int8_t>(static_cast<int32_t>(to_whole(values[i] * by)));
  if (left)
    for (int64_t i = 0; i < count; ++i) left[i] = values[i] - static_cast<float>(codes[i]) * scale;
}
TRIREME_CLONES void from_int8(const int8_t* __restrict codes, int64_t count, float scale,
                              float* __restrict values) {
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(codes[i]) * scale;
}

TRIREME_CLONES void project(const Thin<float>& thin, const float* error) {
  project_rows(thin, error);
}
TRIREME_CLONES void project(const Thin<double>& thin, const double* error) {
  project_rows(thin, error);
}
void orthogonalise(const Thin<float>& thin) { orthogonalise_columns(thin); }
void orthogonalise(const Thin<double>& thin) { orthogonalise_columns(thin); }
TRIREME_CLONES void project_back(const Thin<float>& thin) { project_columns(thin); }
TRIREME_CLONES void project_back(const Thin<double>& thin) { project_columns(thin); }
TRIREME_CLONES void restore(const Thin<float>& thin, float fraction, float* error) {
  restore_rows(thin, fraction, error);
}
TRIREME_CLONES void restore(const Thin<double>& thin, double fraction, double* error) {
  restore_rows(thin, fraction, error);
}

}  // namespace trireme::compression
