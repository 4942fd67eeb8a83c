#include <ATen/core/Tensor.h>

#include <trireme/parallel/boxes.h>
#include <algorithm>

namespace trireme {

at::Tensor part_of(const at::Tensor& whole, const plan::TensorSlice& box) {
  at::Tensor part = whole;
  for (size_t d = 0; d < box.shape.size(); ++d)
    part = part.narrow(static_cast<int64_t>(d), box.from[d], box.sizes[d]);
  return part;
}

std::vector<int64_t> sizes_of(const std::vector<plan::TensorSlice>& boxes) {
  std::vector<int64_t> sizes = boxes.front().sizes;
  for (size_t i = 1; i < boxes.size(); ++i) sizes[0] += boxes[i].sizes[0];
  return sizes;
}

std::vector<plan::TensorSlice> rows_of(const std::vector<plan::TensorSlice>& boxes, int64_t from,
                                       int64_t to) {
  std::vector<plan::TensorSlice> rows;
  int64_t first = 0;  // The box's first row in the tensor.
  for (const plan::TensorSlice& box : boxes) {
    const int64_t begin = std::max(from, first), end = std::min(to, first + box.sizes[0]);
    if (begin < end || (rows.empty() && &box == &boxes.back())) {
      plan::TensorSlice& part = rows.emplace_back(box);
      part.from[0] += std::min(begin - first, box.sizes[0]);
      part.sizes[0] = std::max<int64_t>(0, end - begin);
    }
    first += box.sizes[0];
  }
  return rows;
}

void show_boxes(const std::string& name, const std::vector<plan::TensorSlice>& boxes,
                const at::Tensor& tensor, StateKind kind, StateView& view) {
  int64_t first = 0;
  for (plan::TensorSlice box : boxes) {
    const bool is_all = boxes.size() == 1;
    const at::Tensor rows = is_all ? tensor : tensor.detach().narrow(0, first, box.sizes[0]);
    if (!is_all) first += box.sizes[0];
    box.tensor = name;
    view.push_back({std::move(box), rows, kind});
  }
}

}  // namespace trireme
