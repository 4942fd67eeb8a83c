#include <trireme/comm/host/shm_plans.h>
#include <algorithm>

namespace trireme::comm {
namespace {

// Slice `number` of a tensor: from each chunk, at most `length` elements from number * length on.
// Chunks differ by at most one element, the longer ones first, and so do their parts in a slice.
// So a slice is cut into chunks like any tensor of its size.
class Slice {
 public:
  Slice(const plan::CollectivePlan& plan, int64_t elements, int64_t element_bytes, int64_t length,
        int64_t number)
      : plan_(plan), whole_(elements), element_bytes_(element_bytes), from_(number * length) {
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      const auto [first, last] = plan.chunk_range(chunk, whole_);
      elements_ += std::clamp<int64_t>(last - first - from_, 0, length);
    }
  }

  int64_t elements() const { return elements_; }
  // Calls visit(pointer into the tensor, pointer into the slice, bytes) for each chunk of `run`.
  template <typename Visit>
  void for_each_chunk(const ChunkRun& run, std::byte* slice, Visit visit) const {
    if (run.first == run.last) return;
    const int64_t origin = plan_.chunk_range(run.first, whole_).first;
    for (int chunk = run.first; chunk < run.last; ++chunk) {
      const auto [first, last] = plan_.chunk_range(chunk, elements_);
      if (last == first) continue;
      visit(run.data + (plan_.chunk_range(chunk, whole_).first + from_ - origin) * element_bytes_,
            slice + first * element_bytes_, (last - first) * element_bytes_);
    }
  }

 private:
  const plan::CollectivePlan& plan_;
  int64_t whole_, element_bytes_, from_, elements_ = 0;
};

}  // namespace

void ShmPlans::run_staged(const PreparedPlan& prepared, const ChunkRun& laid,
                          const ChunkRun& taken, plan::DType dtype, Fold fold,
                          const Intent& intent) {
  const plan::CollectivePlan& plan = prepared.plan;
  const int64_t element_bytes = plan::bytes_of(dtype);
  const auto [first, last] = plan.chunk_range(0, intent.elements);
  const int64_t length = ShmStaging::kHalfBytes / plan.chunks / element_bytes;
  const int64_t slices = std::max<int64_t>(1, (last - first + length - 1) / length);
  // The runner returns when no rank reads this rank's slice any more, so one half
  // serves all slices.
  std::byte* const own = staging_.half(staging_.rank(), 0);
  tensors_.clear();
  for (int of = 0; of < staging_.size(); ++of) tensors_.push_back(staging_.half(of, 0));
  for (int64_t number = 0; number < slices; ++number) {
    const Slice slice(plan, intent.elements, element_bytes, length, number);
    slice.for_each_chunk(laid, own, [](std::byte* tensor, std::byte* stage, int64_t bytes) {
      copy_bytes(stage, tensor, bytes);
    });
    if (number == 0)
      staging_.team().meet(intent);
    else
      staging_.team().barrier(intent.operation);
    run(prepared, slice.elements(), dtype, fold, intent);
    slice.for_each_chunk(taken, own, [](std::byte* tensor, std::byte* stage, int64_t bytes) {
      copy_bytes(tensor, stage, bytes);
    });
  }
}

void ShmPlans::run_in_place(const PreparedPlan& prepared, std::span<std::byte* const> places,
                            plan::DType dtype, Fold fold, const Intent& intent) {
  staging_.team().meet(intent);
  tensors_.assign(places.begin(), places.end());
  run(prepared, intent.elements, dtype, fold, intent);
}

void ShmPlans::run(const PreparedPlan& prepared, int64_t elements, plan::DType dtype, Fold fold,
                   const Intent& intent) {
  runner_.run(prepared, tensors_, elements, dtype, fold,
              [&] { staging_.team().barrier(intent.operation); });
}

}  // namespace trireme::comm
