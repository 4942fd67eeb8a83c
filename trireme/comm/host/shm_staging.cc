#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <trireme/comm/blocks.h>
#include <trireme/comm/dtype.h>
#include <trireme/comm/host/shm_staging.h>
#include <cstring>

namespace trireme::comm {

Cut cut_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.numel(),
          static_cast<int64_t>(tensor.element_size())};
}

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void reduce_range(const at::Tensor& like, ReduceOp op, void* target,
                  const std::vector<const void*>& sources, int64_t first, int64_t last) {
  fold_range(to_plan(like.scalar_type()), fold_of(op), target, sources, first, last);
  if (op == ReduceOp::mean && last > first)
    at::from_blob(
        static_cast<std::byte*>(target) + first * static_cast<int64_t>(like.element_size()),
        {last - first}, like.options())
        .div_(static_cast<int64_t>(sources.size()));
}

ShmStaging::ShmStaging(std::shared_ptr<HostTeam> team) : team_(std::move(team)) {
  const size_t bytes = static_cast<size_t>(size()) * 2 * kHalfBytes;
  memory_ = team_->allocate(bytes, bytes, "staging of collectives");
}

}  // namespace trireme::comm
