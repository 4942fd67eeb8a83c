// The size of a table in the arguments of `trireme bench ps`.
#pragma once
#include <cstdint>
#include <string>

namespace trireme::cli {

struct TableSize {
  int64_t rows = 0, width = 0;
};
// Reads "1000000x64". Throws Error(invalid_argument) naming the text, or if a step cannot have so
// many different rows of it, or of the small table beside it.
TableSize table_size_of(const std::string& text, int64_t rows_of_step);

}  // namespace trireme::cli
