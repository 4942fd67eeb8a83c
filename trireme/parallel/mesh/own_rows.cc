#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trireme/parallel/boxes.h>
#include <trireme/parallel/mesh/own_rows.h>

namespace trireme {
namespace {

// The rows, as a view of the parameter. A detached tensor shares the parameter's memory and
// version, so autograd sees an update.
at::Tensor view_of(const OwnTensor& parameter, const plan::RowRange& rows) {
  return parameter.tensor.detach().narrow(0, rows.from, rows.count());
}

OwnTensor part_of_rank(const OwnTensor& parameter, const plan::RowRange& rows, bool apart) {
  OwnTensor part = parameter;
  part.tensor = view_of(parameter, rows);
  if (apart) part.tensor = at::empty(part.tensor.sizes(), part.tensor.options());
  part.tensor.requires_grad_(parameter.tensor.requires_grad());
  part.boxes = rows_of(parameter.boxes, rows.from, rows.from + rows.count());
  return part;
}

std::vector<OwnTensor> parts_of(const std::vector<OwnTensor>& parameters,
                                const plan::RowShards& shards, int rank,
                                const OwnRows::EachInTurn& in_turn) {
  const auto rows = [&](size_t i) -> const plan::RowRange& {
    return shards.rows[i][static_cast<size_t>(rank)];
  };
  std::vector<OwnTensor> parts;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (shards.divides(static_cast<int>(i))) {
      parts.push_back(part_of_rank(parameters[i], rows(i), /*apart=*/in_turn != nullptr));
    } else {
      parts.push_back(parameters[i]);
      parts.back().counts &= rank == 0;
    }
  if (!in_turn) return parts;
  in_turn([&](size_t i) {
    if (shards.divides(static_cast<int>(i)))
      parts[i].tensor.detach().copy_(view_of(parameters[i], rows(i)));
  });
  return parts;
}

}  // namespace

OwnRows::OwnRows(const std::vector<OwnTensor>& parameters, const plan::RowShards& shards, int rank,
                 const EachInTurn& in_turn)
    : parts_(parts_of(parameters, shards, rank, in_turn)),
      masters_(tensors_of(parts_)),
      updated_(named(parts_, masters_.masters())) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const bool is_divided = shards.divides(static_cast<int>(i));
    first_rows_.push_back(is_divided ? shards.rows[i][static_cast<size_t>(rank)].from : 0);
  }
}

}  // namespace trireme
