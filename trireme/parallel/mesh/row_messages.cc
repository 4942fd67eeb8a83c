#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <trireme/base/error.h>
#include <trireme/parallel/mesh/row_messages.h>
#include <algorithm>

namespace trireme {

RowMessages::RowMessages(std::shared_ptr<Group> replicas, const std::vector<OwnTensor>& parameters,
                         const OwnRows& own, const plan::RowShards& shards, OffloadedModel* files)
    : replicas_(std::move(replicas)),
      own_(own),
      shards_(shards),
      files_(files),
      parameters_(tensors_of(parameters)),
      had_gradient_(parameters.size(), false) {
  for (const at::Tensor& parameter : parameters_) memory_.push_back(parameter.variable_data());
}

at::Tensor RowMessages::place(const plan::RowUnit& unit, const at::Tensor& block, size_t i,
                              size_t rank) const {
  const auto param = static_cast<size_t>(unit.params[i]);
  std::vector<int64_t> sizes = parameters_[param].sizes().vec();
  const int64_t row = parameters_[param].numel() / sizes[0];
  sizes[0] = shards_.rows[param][rank].count();
  return block.narrow(0, unit.offsets[rank][i], sizes[0] * row).view(sizes);
}

at::Tensor RowMessages::gradient_of(const plan::RowUnit& unit, int param) const {
  const auto index = static_cast<size_t>(param);
  const at::Tensor& gradient = parameters_[index].grad();
  const at::ScalarType type = own_.updated()[index].tensor.scalar_type();
  if (gradient.defined()) return gradient.to(type);
  return unit.is_in_place ? at::zeros(parameters_[index].sizes(), type) : gradient;
}

at::Tensor RowMessages::packed_gradients(const plan::RowUnit& unit) const {
  const auto first = static_cast<size_t>(unit.params.front());
  const at::Tensor all = at::zeros({replicas_->size() * unit.block_elements},
                                   own_.updated()[first].tensor.scalar_type());
  for (size_t i = 0; i < unit.params.size(); ++i) {
    const auto param = static_cast<size_t>(unit.params[i]);
    const at::Tensor& gradient = parameters_[param].grad();
    if (!gradient.defined()) continue;
    for (size_t rank = 0; rank < shards_.rows[param].size(); ++rank) {
      const auto& rows = shards_.rows[param][rank];
      const at::Tensor block =
          all.narrow(0, static_cast<int64_t>(rank) * unit.block_elements, unit.block_elements);
      place(unit, block, i, rank).copy_(gradient.narrow(0, rows.from, rows.count()));
    }
  }
  return all;
}

void RowMessages::start_reduction(size_t unit_number) {
  const at::NoGradGuard no_grad;
  const plan::RowUnit& unit = shards_.units[unit_number];
  for (const int param : unit.params)
    if (parameters_[static_cast<size_t>(param)].grad().defined())
      had_gradient_[static_cast<size_t>(param)] = true;
  Message message;
  message.input = unit.is_in_place ? gradient_of(unit, unit.params.front()).contiguous().view({-1})
                                   : packed_gradients(unit);
  for (const int param : unit.params)
    parameters_[static_cast<size_t>(param)].mutable_grad().reset();
  message.output = at::empty({unit.block_elements}, message.input.options());
  message.work = replicas_->reduce_scatter_async(message.input, message.output);
  reductions_.push_back({unit_number, std::move(message)});
  // The operation is over already, so the gradients need not stay.
  if (!replicas_->runs_in_background()) finish_reductions();
}

void RowMessages::finish_reductions() {
  const at::NoGradGuard no_grad;
  for (auto& [unit, message] : reductions_) {
    message.work->wait();
    message.input.reset();
    add_to_own_rows(shards_.units[unit], message.output);
    message.output.reset();
  }
  reductions_.clear();
}

void RowMessages::add_to_own_rows(const plan::RowUnit& unit, const at::Tensor& sums) const {
  const auto rank = static_cast<size_t>(replicas_->rank());
  for (size_t i = 0; i < unit.params.size(); ++i) {
    const at::Tensor sum = place(unit, sums, i, rank);
    const at::Tensor& own = own_.updated()[static_cast<size_t>(unit.params[i])].tensor;
    if (own.grad().defined())
      own.mutable_grad().add_(sum);
    else
      own.mutable_grad() = sum;
    if (files_ && files_->gradients()) files_->gradients()->keep(unit.params[i]);
  }
}

at::Tensor RowMessages::packed_rows(const plan::RowUnit& unit) const {
  const auto rank = static_cast<size_t>(replicas_->rank());
  const at::Tensor block = at::zeros(
      {unit.block_elements}, parameters_[static_cast<size_t>(unit.params[0])].scalar_type());
  for (size_t i = 0; i < unit.params.size(); ++i)
    place(unit, block, i, rank).copy_(own_.parts()[static_cast<size_t>(unit.params[i])].tensor);
  return block;
}

void RowMessages::expect_gathering(size_t unit_number) const {
  for (const int param : shards_.units[unit_number].params)
    if (files_) files_->read_ahead(static_cast<size_t>(param));
}

void RowMessages::start_gathering(size_t unit_number) {
  const at::NoGradGuard no_grad;
  const plan::RowUnit& unit = shards_.units[unit_number];
  const auto first = static_cast<size_t>(unit.params.front());
  Message message;
  if (unit.is_in_place) {
    message.input = own_.parts()[first].tensor.detach().view({-1});
    message.output = memory_[first].view({-1});
  } else {
    message.input = packed_rows(unit);
    message.output = at::empty({replicas_->size() * unit.block_elements}, message.input.options());
  }
  message.work = replicas_->all_gather_async(message.input, message.output);
  gatherings_.insert_or_assign(unit_number, std::move(message));
}

void RowMessages::finish_gathering(size_t unit_number) {
  const auto found = gatherings_.find(unit_number);
  if (found == gatherings_.end()) return;
  const Message message = std::move(found->second);
  gatherings_.erase(found);
  message.work->wait();
  const plan::RowUnit& unit = shards_.units[unit_number];
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < unit.params.size() && !unit.is_in_place; ++i) {
    const auto param = static_cast<size_t>(unit.params[i]);
    for (size_t rank = 0; rank < shards_.rows[param].size(); ++rank) {
      const auto& rows = shards_.rows[param][rank];
      const at::Tensor block = message.output.narrow(
          0, static_cast<int64_t>(rank) * unit.block_elements, unit.block_elements);
      memory_[param].narrow(0, rows.from, rows.count()).copy_(place(unit, block, i, rank));
    }
  }
  for (const int param : unit.params)
    if (files_) files_->passed(static_cast<size_t>(param));
}

void RowMessages::drop() {
  // An operation in progress must end before its memory is given away; its error is known.
  const auto end = [](const WorkPtr& work) {
    try {
      work->wait();
    } catch (const Error&) {
      return;
    }
  };
  for (const Reduction& each : reductions_) end(each.message.work);
  for (const auto& [unit, message] : gatherings_) end(message.work);
  reductions_.clear();
  gatherings_.clear();
  std::fill(had_gradient_.begin(), had_gradient_.end(), false);
  for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  for (const auto& [name, tensor] : own_.updated()) tensor.mutable_grad().reset();
}

}  // namespace trireme
