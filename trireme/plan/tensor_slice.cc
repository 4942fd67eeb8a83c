#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/plan/tensor_slice.h>
#include <algorithm>
#include <functional>
#include <numeric>

namespace trireme::plan {

TensorSlice TensorSlice::whole(std::string tensor, std::vector<int64_t> shape) {
  std::vector<int64_t> from(shape.size(), 0);
  return {std::move(tensor), shape, std::move(from), shape};
}

bool TensorSlice::is_whole() const {
  return sizes == shape && std::ranges::all_of(from, [](int64_t each) { return each == 0; });
}

int64_t TensorSlice::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

std::string TensorSlice::describe() const {
  if (is_whole()) return fmt::format("{}{}", tensor, shape);
  std::vector<std::string> ranges;
  for (size_t d = 0; d < from.size(); ++d)
    ranges.push_back(fmt::format("{}:{}", from[d], from[d] + (d < sizes.size() ? sizes[d] : 0)));
  return fmt::format("{}[{}] of {}", tensor, fmt::join(ranges, ", "), shape);
}

void check(const TensorSlice& slice) {
  bool fits = slice.from.size() == slice.shape.size() && slice.sizes.size() == slice.shape.size();
  for (size_t d = 0; fits && d < slice.shape.size(); ++d)
    fits = slice.from[d] >= 0 && slice.sizes[d] >= 0 &&
           slice.from[d] + slice.sizes[d] <= slice.shape[d];
  if (!fits)
    throw Error(ErrorCode::internal, "plan",
                fmt::format("the slice {} does not lie within its tensor", slice.describe()),
                "a slice with as many dimensions as the tensor, inside its shape");
}

}  // namespace trireme::plan
