// The collectives in which every rank reads every other's memory (naive and direct), in an
// implementation of their own. A piece takes one barrier, while the rounds of a plan would take
// one each. The results have the same bits as those of the plans.
#pragma once
#include <trireme/comm/host/shm_staging.h>
#include <trireme/comm/splits.h>
#include <span>
#include <utility>

namespace trireme::comm {

// The collectives of one rank; one thread at a time. Every operation is COLLECTIVE, and compares
// `intent` over the team before it reads what others wrote.
class ShmDirect {
 public:
  explicit ShmDirect(ShmStaging& staging) : staging_(staging) {}

  // Runs the plan `naive`: each rank adds up the whole tensor.
  void reduce_whole(const at::Tensor& tensor, ReduceOp op, const Intent& intent);
  // Runs the plan `direct`: each rank adds up its part of a piece, and takes the other parts.
  void reduce_by_parts(const at::Tensor& tensor, ReduceOp op, const Intent& intent);
  // The same for a tensor that all ranks can access. places[r] is the start of rank r's tensor;
  // places[rank] is `tensor`. Each rank adds up its part and writes it into all tensors.
  void reduce_in_place(const at::Tensor& tensor, ReduceOp op, std::span<std::byte* const> places,
                       const Intent& intent);
  // output = block `rank` of the reduction of all inputs. `output` may lie in `input`.
  void reduce_block(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                    const Intent& intent);
  // output = all inputs, in rank order. `output` is undefined on ranks that take nothing.
  void collect(const at::Tensor& input, const at::Tensor& output, const Intent& intent);
  // Block r of `input` goes to rank r; block r of `output` comes from it.
  void exchange(const at::Tensor& input, const at::Tensor& output, const Splits& splits,
                const Intent& intent);
  void hand_out(const at::Tensor& tensor, int root, const Intent& intent);

 private:
  template <typename LayOut, typename Take>
  void in_rounds(const Intent& intent, int64_t elements, int64_t piece, LayOut lay_out, Take take);
  std::vector<const void*> pieces_of_all(const Cut& own, int64_t round, int64_t first) const;

  ShmStaging& staging_;
};

}  // namespace trireme::comm
