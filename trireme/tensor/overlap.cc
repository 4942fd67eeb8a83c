#include <trireme/tensor/overlap.h>
#include <algorithm>

namespace trireme {
namespace {

struct ByteRange {
  const std::byte *begin, *end;
  size_t tensor;
};

const std::byte* end_of(const at::Tensor& tensor) {
  int64_t last = 0;  // The last element's distance from the first.
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  return static_cast<const std::byte*>(tensor.const_data_ptr()) +
         (last + 1) * tensor.element_size();
}

}  // namespace

std::vector<bool> overlapping(const std::vector<at::Tensor>& tensors) {
  std::vector<ByteRange> ranges;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (const at::Tensor& tensor = tensors[i];
        tensor.defined() && tensor.has_storage() && tensor.numel() > 0)
      ranges.push_back(
          {static_cast<const std::byte*>(tensor.const_data_ptr()), end_of(tensor), i});
  std::ranges::sort(ranges, {}, &ByteRange::begin);
  std::vector<bool> overlap(tensors.size(), false);
  const ByteRange* longest = nullptr;  // The range that ends last, among those before.
  for (const ByteRange& range : ranges) {
    if (longest && range.begin < longest->end)
      overlap[range.tensor] = overlap[longest->tensor] = true;
    if (!longest || range.end > longest->end) longest = &range;
  }
  return overlap;
}

}  // namespace trireme
