#include <trireme/models/amoebanet_layout.h>

namespace trireme::models {
namespace {

const CellRecipe& normal_recipe() {
  using enum CellOperation;
  static const CellRecipe recipe = {{{{convolution1x1, 1},
                                      {max_pool3x3, 1},
                                      {none, 1},
                                      {convolution1x7_7x1, 0},
                                      {convolution1x1, 0},
                                      {convolution1x7_7x1, 0},
                                      {max_pool3x3, 2},
                                      {none, 2},
                                      {average_pool3x3, 1},
                                      {convolution1x1, 5}}},
                                    {0, 3, 4, 6}};
  return recipe;
}

const CellRecipe& reduction_recipe() {
  using enum CellOperation;
  static const CellRecipe recipe = {{{{max_pool2x2, 0},
                                      {max_pool3x3, 0},
                                      {none, 2},
                                      {convolution3x3, 1},
                                      {convolution1x7_7x1, 2},
                                      {max_pool3x3, 2},
                                      {none, 3},
                                      {max_pool2x2, 1},
                                      {average_pool3x3, 2},
                                      {convolution1x1, 3}}},
                                    {4, 5, 6}};
  return recipe;
}

}  // namespace

const CellRecipe& AmoebaCell::recipe() const {
  return halves ? reduction_recipe() : normal_recipe();
}

std::vector<AmoebaCell> amoebanet_cells(int64_t layers, int64_t width) {
  std::vector<AmoebaCell> cells;
  int64_t inputs = amoebanet_stem(width), skip_inputs = inputs;
  const auto add = [&](bool halves, int64_t filters) {
    const bool skip_halves = !cells.empty() && cells.back().halves;
    cells.push_back({halves, skip_halves, filters, inputs, skip_inputs});
    skip_inputs = inputs;
    inputs = cells.back().outputs();
  };
  add(true, width / 2);
  add(true, width);
  for (int64_t filters : {width, 2 * width, 4 * width}) {
    if (filters > width) add(true, filters);
    for (int64_t i = 0; i < layers / 3; ++i) add(false, filters);
  }
  return cells;
}

std::vector<CellConvolution> convolutions_of(CellOperation operation, int64_t filters,
                                             int64_t stride) {
  using enum CellOperation;
  const int64_t narrow = filters / 4;
  switch (operation) {
    case convolution1x1: return {{filters, filters, {1, 1}, {stride, stride}}};
    case convolution3x3:
      return {{filters, narrow}, {narrow, narrow, {3, 3}, {stride, stride}}, {narrow, filters}};
    case convolution1x7_7x1:
      return {{filters, narrow},
              {narrow, narrow, {1, 7}, {1, stride}},
              {narrow, narrow, {7, 1}, {stride, 1}},
              {narrow, filters}};
    case none:
    case average_pool3x3:
    case max_pool2x2:
    case max_pool3x3: break;
  }
  return {};
}

}  // namespace trireme::models
