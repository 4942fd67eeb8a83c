#include <ATen/core/Tensor.h>

#include <trireme/parallel/boxes.h>
#include <trireme/parallel/mesh/own_rows.h>

namespace trireme {
namespace {

OwnTensor rows_of(const OwnTensor& parameter, const plan::RowRange& rows, bool apart) {
  OwnTensor part = parameter;
  // A detached tensor shares the parameter's memory and version, so autograd sees an update.
  part.tensor = parameter.tensor.detach().narrow(0, rows.from, rows.count());
  if (apart) part.tensor = part.tensor.clone();
  part.tensor.requires_grad_(parameter.tensor.requires_grad());
  part.boxes = trireme::rows_of(parameter.boxes, rows.from, rows.from + rows.count());
  return part;
}

std::vector<OwnTensor> parts_of(const std::vector<OwnTensor>& parameters,
                                const plan::RowShards& shards, int rank, bool apart) {
  std::vector<OwnTensor> parts;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (shards.divides(static_cast<int>(i))) {
      parts.push_back(rows_of(parameters[i], shards.rows[i][static_cast<size_t>(rank)], apart));
    } else {
      parts.push_back(parameters[i]);
      parts.back().counts &= rank == 0;
    }
  return parts;
}

}  // namespace

OwnRows::OwnRows(const std::vector<OwnTensor>& parameters, const plan::RowShards& shards, int rank,
                 bool apart)
    : parts_(parts_of(parameters, shards, rank, apart)),
      masters_(tensors_of(parts_)),
      updated_(named(parts_, masters_.masters())) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const bool is_divided = shards.divides(static_cast<int>(i));
    first_rows_.push_back(is_divided ? shards.rows[i][static_cast<size_t>(rank)].from : 0);
  }
}

}  // namespace trireme
