// The numbers that define an AmoebaNet-D (L, D), for its shapes and its module; no torch.
//
// The cells are those of Real et al. 2018, "Regularized evolution for image classifier
// architecture search" (arXiv 1802.01548), as the code that its authors published has them: there
// a normal cell gives four of its tensors. L and D are those of Huang et al. 2018, "GPipe" (arXiv
// 1811.06965), section 4: L normal cells, and D filters in each of the first third of them. The
// stem has D/4, D/2 and D filters; with these widths the numbers of parameters are the nearest to
// those of GPipe's table 1 (docs/models.md has both).
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace trireme::models {

enum class CellOperation {
  none,
  convolution1x1,
  convolution3x3,
  convolution1x7_7x1,
  average_pool3x3,
  max_pool2x2,
  max_pool3x3
};

// An operation, and the number of the tensor that it takes. The tensors of a cell are the output
// of the cell before, that of the cell before that one (both brought to the cell's filters), and
// then the sums of the steps 0 and 1, 2 and 3, and so on.
struct CellStep {
  CellOperation operation;
  size_t tensor;
  // The first two tensors of a cell that halves the image are still of the full size.
  bool takes_input() const { return tensor < 2; }
};

struct CellRecipe {
  std::array<CellStep, 10> steps;
  std::vector<size_t> outputs;  // The tensors that the cell gives, one behind the other.
};

struct AmoebaCell {
  bool halves = false;       // A reduction cell: it halves height and width.
  bool skip_halves = false;  // The cell before it did, so the tensor from before it is larger.
  int64_t filters = 0;
  int64_t inputs = 0;       // Channels that the cell before gives.
  int64_t skip_inputs = 0;  // Channels that the cell before that one gives.

  const CellRecipe& recipe() const;
  int64_t stride(const CellStep& step) const { return halves && step.takes_input() ? 2 : 1; }
  int64_t outputs() const { return filters * static_cast<int64_t>(recipe().outputs.size()); }
};

// All cells, those of the stem first: two reduction cells, then layers / 3 normal cells three
// times, with a reduction cell between. `layers` is a multiple of 3, and `width` one of 8.
std::vector<AmoebaCell> amoebanet_cells(int64_t layers, int64_t width);
inline int64_t amoebanet_stem(int64_t width) {
  return width / 4;
}  // Filters of the first convolution.

struct CellConvolution {
  int64_t inputs, outputs;
  std::array<int64_t, 2> window = {1, 1}, stride = {1, 1};  // Height, width.
};
// The convolutions that an operation consists of; none for a pooling. Those of 3x3, 1x7 and 7x1
// have a quarter of the filters, between two of 1x1.
std::vector<CellConvolution> convolutions_of(CellOperation operation, int64_t filters,
                                             int64_t stride);

}  // namespace trireme::models
