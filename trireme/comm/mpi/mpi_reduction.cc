#include <trireme/comm/dtype.h>
#include <trireme/comm/mpi/mpi_calls.h>
#include <trireme/comm/mpi/mpi_reduction.h>
#include <trireme/comm/threads/reduce_kernel.h>
#include <array>
#include <map>

namespace trireme::comm {
namespace {

// One function for each type and fold, since MPI passes no context to its functions.
template <plan::DType dtype, Fold fold>
void reduce(void* theirs, void* mine, int* count, MPI_Datatype*) {
  const std::array<const void*, 2> sources{theirs, mine};
  fold_range(dtype, fold, mine, sources, 0, *count);
}

template <Fold fold>
MPI_User_function* function_for(plan::DType dtype) {
  switch (dtype) {
    case plan::DType::float32: return reduce<plan::DType::float32, fold>;
    case plan::DType::float64: return reduce<plan::DType::float64, fold>;
    case plan::DType::float16: return reduce<plan::DType::float16, fold>;
    case plan::DType::bfloat16: return reduce<plan::DType::bfloat16, fold>;
    case plan::DType::int32: return reduce<plan::DType::int32, fold>;
    case plan::DType::int64: return reduce<plan::DType::int64, fold>;
    case plan::DType::uint8: return reduce<plan::DType::uint8, fold>;
    default: return nullptr;  // It is only stored: to_plan() refuses it.
  }
}

MPI_User_function* function_for(plan::DType dtype, Fold fold) {
  switch (fold) {
    case Fold::sum: return function_for<Fold::sum>(dtype);
    case Fold::max: return function_for<Fold::max>(dtype);
    case Fold::min: return function_for<Fold::min>(dtype);
  }
  return nullptr;
}

bool is_two_bytes(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

}  // namespace

MPI_Datatype mpi_type_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return mpi().float32;
    case at::kDouble: return mpi().float64;
    case at::kInt: return mpi().int32;
    case at::kLong: return mpi().int64;
    case at::kByte: return mpi().uint8;
    default: break;
  }
  const std::lock_guard lock(mpi_mutex());
  static MPI_Datatype two_bytes = [] {
    MPI_Datatype made;
    mpi().Type_contiguous(2, mpi().byte, &made);
    mpi().Type_commit(&made);
    return made;
  }();
  return two_bytes;
}

MPI_Op mpi_op_of(at::ScalarType type, ReduceOp op) {
  const Fold fold = op == ReduceOp::max ? Fold::max : op == ReduceOp::min ? Fold::min : Fold::sum;
  if (fold == Fold::sum && !is_two_bytes(type)) return mpi().sum;
  const std::lock_guard lock(mpi_mutex());
  static std::map<std::pair<plan::DType, Fold>, MPI_Op> made;
  const auto [found, is_new] = made.try_emplace({to_plan(type), fold}, mpi().op_null);
  if (is_new) mpi().Op_create(function_for(to_plan(type), fold), /*commute=*/1, &found->second);
  return found->second;
}

}  // namespace trireme::comm
