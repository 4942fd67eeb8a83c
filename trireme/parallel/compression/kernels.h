// The arithmetic of compression on ranges of numbers. No torch. Every result depends on the values
// alone, never on how they are cut.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::compression {

// Whether no value is NaN or infinite.
bool is_finite(const float* values, int64_t count);
bool is_finite(const double* values, int64_t count);

// bfloat16: the upper half of a float, rounded to even. `left` may be null; otherwise left[i] =
// values[i] - the value of its code.
void to_bf16(const float* values, int64_t count, uint16_t* codes, float* left);
void from_bf16(const uint16_t* codes, int64_t count, float* values);

// float16 of values / scale, rounded to even. |values| must not exceed 65504 x scale.
void to_fp16(const float* values, int64_t count, float scale, uint16_t* codes, float* left);
void from_fp16(const uint16_t* codes, int64_t count, float scale, float* values);

// The whole numbers nearest to values / scale. |values| must not exceed 127 x scale.
void to_int8(const float* values, int64_t count, float scale, int8_t* codes, float* left);
void from_int8(const int8_t* codes, int64_t count, float scale, float* values);

// The largest |value| of finite values; 0 if count is 0.
float largest_magnitude(const float* values, int64_t count);

// A product of two thin matrices that replaces a large one, row by row. The factors are kept
// transposed: [rank][rows] and [rank][columns].
//   project     matrix += error; p[k][i] = sum over j of matrix[i][j] q[k][j]
//   project_back                 q[k][j] = sum over i of p[k][i] matrix[i][j]
//   restore     error = matrix - fraction x P Q^T; matrix = P Q^T
template <typename T>
struct Thin {
  int64_t rows = 0, columns = 0, rank = 0;
  T* matrix = nullptr;
  T* p = nullptr;
  T* q = nullptr;
};
void project(const Thin<float>& thin, const float* error);
void project(const Thin<double>& thin, const double* error);
// Makes P's columns orthogonal and of length 1 (Gram-Schmidt, twice each). A column that adds
// no direction of its own is replaced by one that does, so that gradients of zero do not make
// Q zero for ever.
void orthogonalise(const Thin<float>& thin);
void orthogonalise(const Thin<double>& thin);
void project_back(const Thin<float>& thin);
void project_back(const Thin<double>& thin);
void restore(const Thin<float>& thin, float fraction, float* error);
void restore(const Thin<double>& thin, double fraction, double* error);

}  // namespace trireme::compression
