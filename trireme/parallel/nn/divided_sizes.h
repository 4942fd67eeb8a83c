// Checks of the sizes that ranks divide among them, with one wording for all layers.
#pragma once
#include <cstdint>
#include <string>

namespace trireme::nn {

// Throw Error(invalid_argument) naming the layer, the size and the number of ranks: unless every
// rank gets one of them, or unless all ranks get equally many. `sizes`: "rows of the vocabulary".
void require_enough(const std::string& layer, int64_t count, const char* sizes, int ranks);
void require_even(const std::string& layer, int64_t count, const char* sizes, int ranks,
                  const std::string& key);
// Throws Error(invalid_argument) unless the number is positive. `size`: "ColumnLinear's out".
void require_positive(const char* size, int64_t value);

}  // namespace trireme::nn
