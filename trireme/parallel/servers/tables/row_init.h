// The values with which the rows of a table begin: a pure function of seed, table and row. So they
// depend neither on the order in which rows are first used, nor on the number of servers.
#pragma once
#include <cstdint>
#include <string_view>

namespace trireme {

enum class RowStart { zeros, uniform, normal };

struct RowInit {
  RowStart start = RowStart::normal;
  // uniform: from -scale to scale. normal: the standard deviation; torch::nn::Embedding has 1.
  double scale = 1;
  uint64_t seed = 0;
};
// Throws Error(invalid_argument) for a scale below 0.
void check(const RowInit& init);

namespace servers {

uint64_t key_of_table(std::string_view name);
// values: [width].
void initial_row(const RowInit& init, uint64_t table, int64_t row, float* values, int64_t width);

}  // namespace servers
}  // namespace trireme
