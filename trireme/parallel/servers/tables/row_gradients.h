// Gradients of rows, and their sums: the gradient of a row is the sum over all its occurrences.
#pragma once
#include <trireme/parallel/servers/tables/row_index.h>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::servers {

// Gradients of some rows of a table, in memory of somebody else's.
struct RowGradients {
  size_t table = 0;
  int64_t width = 0;
  std::span<const int64_t> rows;
  const float* gradients = nullptr;  // [rows, width]

  const float* of(size_t i) const { return gradients + i * static_cast<size_t>(width); }
};

// Adds up gradients by row. Rows are in the order of their first occurrence.
class RowSums {
 public:
  // Room for so many rows, before it grows.
  explicit RowSums(int64_t width, size_t rows = 0)
      : width_(static_cast<size_t>(width)), places_(rows) {
    rows_.reserve(rows);
    sums_.reserve(rows * width_);
  }

  void add(const RowGradients& gradients, float factor = 1) {
    for (size_t i = 0; i < gradients.rows.size(); ++i) {
      const auto next = static_cast<uint32_t>(rows_.size());
      const uint32_t at = places_.find_or_add(gradients.rows[i], next);
      const float* const from = gradients.of(i);
      if (at == next) {
        rows_.push_back(gradients.rows[i]);
        sums_.insert(sums_.end(), from, from + width_);
        if (factor != 1)
          for (size_t k = sums_.size() - width_; k < sums_.size(); ++k) sums_[k] *= factor;
        continue;
      }
      float* const to = sums_.data() + at * width_;
      for (size_t k = 0; k < width_; ++k) to[k] += factor * from[k];
    }
  }

  std::span<const int64_t> rows() const { return rows_; }
  const float* gradients() const { return sums_.data(); }  // [rows, width]

 private:
  size_t width_;
  RowIndex places_;
  std::vector<int64_t> rows_;
  std::vector<float> sums_;
};

}  // namespace trireme::servers
