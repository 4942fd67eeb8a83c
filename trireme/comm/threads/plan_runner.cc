#include <trireme/comm/threads/plan_runner.h>
#include <algorithm>
#include <cstring>

namespace trireme::comm {

struct PlanRunner::Piece {
  int64_t first, count;  // Elements.
};

// The tensors of all ranks, cut into chunks and pieces.
struct PlanRunner::Tensors {
  const plan::CollectivePlan& plan;
  std::span<void* const> begin;  // [rank]
  int64_t elements, element_bytes, pieces;
  plan::DType dtype;
  Fold fold;

  Piece piece(int chunk, int64_t number) const {
    const auto [first, last] = plan.chunk_range(chunk, elements);
    const int64_t from = first + (last - first) * number / pieces;
    return {from, first + (last - first) * (number + 1) / pieces - from};
  }
  std::byte* at(int rank, const Piece& piece) const {
    return static_cast<std::byte*>(begin[static_cast<size_t>(rank)]) + piece.first * element_bytes;
  }
  size_t bytes(const Piece& piece) const {
    return static_cast<size_t>(piece.count * element_bytes);
  }
};

void PlanRunner::run(const PreparedPlan& prepared, std::span<void* const> tensors,
                     int64_t elements, plan::DType dtype, Fold fold,
                     const std::function<void()>& barrier) {
  const plan::CollectivePlan& plan = prepared.plan;
  const int64_t element_bytes = plan::bytes_of(dtype);
  const int64_t longest = plan.chunk_range(0, elements).second * element_bytes;
  const int64_t pieces = std::max<int64_t>(1, (longest + piece_bytes_ - 1) / piece_bytes_);
  const Tensors all{plan, tensors, elements, element_bytes, pieces, dtype, fold};
  for (int64_t number = 0; number < pieces; ++number) {
    for (size_t round = 0; round < plan.rounds.size(); ++round) {
      const auto& receives = plan.rounds[round][static_cast<size_t>(rank_)].receives;
      const bool last_round = round + 1 == plan.rounds.size();
      if (prepared.staged[round]) {
        fold_aside(all, receives, number);
        barrier();
        copy_back(all, receives, number);
        if (!last_round) barrier();
      } else {
        fold_in_place(all, receives, number);
        // The next piece touches nothing of this one, so its last round needs no barrier.
        if (!last_round || number + 1 == pieces) barrier();
      }
    }
  }
}

void PlanRunner::fold_in_place(const Tensors& tensors, const Receives& receives, int64_t number) {
  for (const plan::Transfer& receive : receives) {
    const Piece piece = tensors.piece(receive.chunk, number);
    fold_into(tensors.at(rank_, piece), tensors, piece, receive.sources);
  }
}

void PlanRunner::fold_aside(const Tensors& tensors, const Receives& receives, int64_t number) {
  size_t needed = 0;
  for (const plan::Transfer& receive : receives)
    needed += tensors.bytes(tensors.piece(receive.chunk, number));
  if (aside_.size() < needed) aside_.resize(needed);
  std::byte* target = aside_.data();
  for (const plan::Transfer& receive : receives) {
    const Piece piece = tensors.piece(receive.chunk, number);
    fold_into(target, tensors, piece, receive.sources);
    target += tensors.bytes(piece);
  }
}

void PlanRunner::copy_back(const Tensors& tensors, const Receives& receives, int64_t number) {
  const std::byte* source = aside_.data();
  for (const plan::Transfer& receive : receives) {
    const Piece piece = tensors.piece(receive.chunk, number);
    if (piece.count > 0) std::memcpy(tensors.at(rank_, piece), source, tensors.bytes(piece));
    source += tensors.bytes(piece);
  }
}

void PlanRunner::fold_into(std::byte* target, const Tensors& tensors, const Piece& piece,
                           std::span<const int> sources) {
  if (piece.count == 0) return;
  if (sources.size() == 1) {
    std::memcpy(target, tensors.at(sources[0], piece), tensors.bytes(piece));
    return;
  }
  sources_.clear();
  for (const int source : sources) sources_.push_back(tensors.at(source, piece));
  fold_range(tensors.dtype, tensors.fold, target, sources_, 0, piece.count);
}

}  // namespace trireme::comm
