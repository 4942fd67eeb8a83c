// The optimizers of embedding tables. Each row is updated by itself, with a state of its own; rows
// that are not in a push do not change, nor does their state.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

enum class RowRule {
  sgd,  // w -= lr g
  // Duchi et al. 2011, an accumulator for each value: s += g g; w -= lr g / (sqrt(s) + eps).
  adagrad,
  // One accumulator for the row, as in FBGEMM and in DLRM's code: s += mean(g g).
  row_adagrad,
  // Kingma, Ba 2015, lazily: the moments and the step count of a row advance when it is pushed.
  adam,
  // FTRL-Proximal (McMahan et al. 2013, "Ad Click Prediction: a View from the Trenches",
  // algorithm 1), with lr as its alpha. z starts so that w is the row's initial value.
  ftrl,
};
std::string_view to_string(RowRule rule);
// Throws Error(invalid_argument) naming the choices.
RowRule row_rule_from_string(std::string_view name);

struct RowOptimizer {
  RowRule rule = RowRule::sgd;
  double lr = 0.01;
  double eps = 1e-10;     // adagrad, row_adagrad, adam
  double beta1 = 0.9;     // adam
  double beta2 = 0.999;   // adam
  double first_sum = 0;   // adagrad, row_adagrad: the accumulator's first value.
  double beta = 1;        // ftrl
  double l1 = 0, l2 = 0;  // ftrl
};
// Throws Error(invalid_argument) naming the option that is out of its range.
void check(const RowOptimizer& optimizer);
// "adagrad, lr 0.05, ...": all options of the rule.
std::string describe(const RowOptimizer& optimizer);

namespace servers {

// A part of the state behind the values of a row.
struct RowState {
  std::string_view name;  // As torch::optim names it: "sum", "exp_avg".
  int64_t floats = 0;
};
std::vector<RowState> state_of_row(RowRule rule, int64_t width);
int64_t floats_of_row(RowRule rule, int64_t width);  // Values and state.

// Sets the state of a new row, whose values are there.
void begin_row(const RowOptimizer& optimizer, float* row, int64_t width);
// Updates `count` rows in this order. rows[i]: values and state. gradients[i]: [width].
void update_rows(const RowOptimizer& optimizer, float* const* rows, const float* const* gradients,
                 size_t count, int64_t width);
// Copies the values of rows one after another to `to`.
void gather_rows(const float* const* rows, size_t count, int64_t width, float* to);

}  // namespace servers
}  // namespace trireme
