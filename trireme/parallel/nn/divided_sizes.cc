#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/nn/divided_sizes.h>

namespace trireme::nn {

void require_enough(const std::string& layer, int64_t count, const char* sizes, int ranks) {
  if (count >= ranks) return;
  throw Error(ErrorCode::invalid_argument, "parallel",
              fmt::format("the layer '{}' has {} {}, fewer than the {} ranks of the tensor axis",
                          layer, count, sizes, ranks),
              fmt::format("mesh.tensor={} or fewer", count));
}

void require_even(const std::string& layer, int64_t count, const char* sizes, int ranks,
                  const std::string& key) {
  if (count % ranks == 0) return;
  throw Error(ErrorCode::invalid_argument, "parallel",
              fmt::format("the layer '{}' has {} {}, which {} ranks of the tensor axis cannot "
                          "divide evenly",
                          layer, count, sizes, ranks),
              fmt::format("a mesh.tensor that divides {}, or a multiple of {} {} ({})", count,
                          ranks, sizes, key));
}

void require_positive(const char* size, int64_t value) {
  if (value > 0) return;
  throw Error(ErrorCode::invalid_argument, "parallel", fmt::format("{} is {}", size, value),
              "1 or more");
}

}  // namespace trireme::nn
