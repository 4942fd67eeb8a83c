#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <trireme/comm/host/shm_direct.h>
#include <algorithm>

namespace trireme::comm {
namespace {

constexpr int64_t kHalfBytes = ShmStaging::kHalfBytes;

// Part `part` of `parts` of the elements [first, last), in whole cache lines where possible.
std::pair<int64_t, int64_t> part_of(int64_t first, int64_t last, int part, int parts) {
  const int64_t each = ((last - first + parts - 1) / parts + 63) / 64 * 64;
  const int64_t from = std::min(last, first + part * each);
  return {from, std::min(last, from + each)};
}

}  // namespace

// Every rank lays out its pieces, then `take` uses the pieces of all ranks for elements [first,
// last) of a block.
template <typename LayOut, typename Take>
void ShmDirect::in_rounds(const Intent& intent, int64_t elements, int64_t piece, LayOut lay_out,
                          Take take) {
  const int64_t rounds = std::max<int64_t>(1, (elements + piece - 1) / piece);
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t first = round * piece, last = std::min(elements, first + piece);
    lay_out(staging_.half(staging_.rank(), round), first, last);
    if (round == 0)
      staging_.team().meet(intent);
    else
      staging_.team().barrier(intent.operation);
    take(round, first, last);
  }
  staging_.leave(rounds);
}

// The pieces of all ranks from element `first` on. Each pointer is shifted so that element numbers
// of the tensor index it; this rank's own points to its tensor.
std::vector<const void*> ShmDirect::pieces_of_all(const Cut& own, int64_t round,
                                                  int64_t first) const {
  std::vector<const void*> sources(static_cast<size_t>(staging_.size()));
  for (int of = 0; of < staging_.size(); ++of)
    sources[static_cast<size_t>(of)] =
        of == staging_.rank() ? own.data : staging_.half(of, round) - first * own.element_bytes;
  return sources;
}

void ShmDirect::reduce_whole(const at::Tensor& tensor, ReduceOp op, const Intent& intent) {
  const Cut cut = cut_of(tensor);
  in_rounds(
      intent, cut.elements, kHalfBytes / cut.element_bytes,
      [&](std::byte* stage, int64_t first, int64_t last) {
        copy_bytes(stage, cut.at(first), (last - first) * cut.element_bytes);
      },
      [&](int64_t round, int64_t first, int64_t last) {
        reduce_range(tensor, op, cut.data, pieces_of_all(cut, round, first), first, last);
      });
}

// Each rank lays out the next round before the barrier, so that a round has one barrier.
void ShmDirect::reduce_by_parts(const at::Tensor& tensor, ReduceOp op, const Intent& intent) {
  const int rank = staging_.rank(), size = staging_.size();
  const Cut cut = cut_of(tensor);
  const int64_t lines = 64 * size;
  const int64_t piece = std::max<int64_t>(
      1, std::min(kHalfBytes / cut.element_bytes, (cut.elements + lines - 1) / lines * lines));
  const int64_t rounds = (cut.elements + piece - 1) / piece;
  const auto range = [&](int64_t round) {
    return std::pair(round * piece, std::min(cut.elements, (round + 1) * piece));
  };
  // A rank's part of a piece lies at the same place in every round, even in the last, shorter one.
  // Slower ranks may still read its reduced values while the round after the next is laid out
  // around it.
  const auto part = [&](int64_t round, int of) {
    const auto [first, last] = range(round);
    const auto [from, to] = part_of(first, first + piece, of, size);
    return std::pair(std::min(from, last), std::min(to, last));
  };
  const auto lay_out = [&](int64_t round) {
    if (round >= rounds) return;
    const auto [first, last] = range(round);
    const auto [from, to] = part(round, rank);
    std::byte* const stage = staging_.half(rank, round);
    copy_bytes(stage, cut.at(first), (from - first) * cut.element_bytes);
    copy_bytes(stage + (to - first) * cut.element_bytes, cut.at(to),
               (last - to) * cut.element_bytes);
  };
  lay_out(0);
  staging_.team().meet(intent);
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t first = range(round).first;
    const auto [from, to] = part(round, rank);
    reduce_range(tensor, op, cut.data, pieces_of_all(cut, round, first), from, to);
    copy_bytes(staging_.half(rank, round) + (from - first) * cut.element_bytes, cut.at(from),
               (to - from) * cut.element_bytes);
    lay_out(round + 1);
    staging_.team().barrier(intent.operation);
    for (int of = 0; of < size; ++of) {
      if (of == rank) continue;
      const auto [theirs, end] = part(round, of);
      copy_bytes(cut.at(theirs), staging_.half(of, round) + (theirs - first) * cut.element_bytes,
                 (end - theirs) * cut.element_bytes);
    }
  }
  staging_.leave(rounds);
}

void ShmDirect::reduce_in_place(const at::Tensor& tensor, ReduceOp op,
                                std::span<std::byte* const> places, const Intent& intent) {
  staging_.team().meet(intent);
  const Cut cut = cut_of(tensor);
  const auto [first, last] = part_of(0, cut.elements, staging_.rank(), staging_.size());
  const int64_t piece = kHalfBytes / 8 / cut.element_bytes;
  const std::vector<const void*> sources(places.begin(), places.end());
  for (int64_t from = first; from < last; from += piece) {
    const int64_t to = std::min(last, from + piece);
    reduce_range(tensor, op, cut.data, sources, from, to);
    for (std::byte* const place : places)
      if (place != cut.data)
        copy_bytes(place + from * cut.element_bytes, cut.at(from),
                   (to - from) * cut.element_bytes);
  }
  staging_.team().barrier(intent.operation);
}

// A half holds a piece of the block of each other rank. This rank's own block stays in its tensor.
void ShmDirect::reduce_block(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                             const Intent& intent) {
  const int rank = staging_.rank(), size = staging_.size();
  const Cut in = cut_of(input), out = cut_of(output);
  const int64_t others = std::max(1, size - 1);
  const int64_t piece = std::max<int64_t>(1, kHalfBytes / others / in.element_bytes);
  // The place in the half of rank `of` for the block of rank `to`.
  const auto place = [&](int of, int to) {
    return (to < of ? to : to - 1) * piece * in.element_bytes;
  };
  // If the output is part of the input, later pieces would be overwritten before they
  // are laid out.
  const at::Tensor reduced = output.is_alias_of(input) ? at::empty_like(output) : output;
  in_rounds(
      intent, out.elements, piece,
      [&](std::byte* stage, int64_t first, int64_t last) {
        for (int to = 0; to < size; ++to)
          if (to != rank)
            copy_bytes(stage + place(rank, to), in.at(to * out.elements + first),
                       (last - first) * in.element_bytes);
      },
      [&](int64_t round, int64_t first, int64_t last) {
        std::vector<const void*> sources;
        for (int of = 0; of < size; ++of)
          sources.push_back(of == rank ? in.at(rank * out.elements)
                                       : staging_.half(of, round) + place(of, rank) -
                                             first * in.element_bytes);
        reduce_range(output, op, reduced.mutable_data_ptr(), sources, first, last);
      });
  if (!reduced.is_same(output)) output.copy_(reduced);
}

void ShmDirect::collect(const at::Tensor& input, const at::Tensor& output, const Intent& intent) {
  const Cut in = cut_of(input);
  const Cut out = output.defined() ? cut_of(output) : Cut{};
  in_rounds(
      intent, in.elements, kHalfBytes / in.element_bytes,
      [&](std::byte* stage, int64_t first, int64_t last) {
        copy_bytes(stage, in.at(first), (last - first) * in.element_bytes);
      },
      [&](int64_t round, int64_t first, int64_t last) {
        for (int of = 0; out.data != nullptr && of < staging_.size(); ++of)
          copy_bytes(out.at(of * in.elements + first), staging_.half(of, round),
                     (last - first) * in.element_bytes);
      });
}

// A half holds a piece of the block for each rank.
void ShmDirect::exchange(const at::Tensor& input, const at::Tensor& output, const Splits& splits,
                         const Intent& intent) {
  const int rank = staging_.rank(), size = staging_.size();
  const Cut in = cut_of(input), out = cut_of(output);
  const int64_t piece = std::max<int64_t>(1, kHalfBytes / size / in.element_bytes);
  // The part of a block of this length that lies in [first, last).
  const auto bytes = [&](int64_t length, int64_t first, int64_t last) {
    return (std::min(length, last) - first) * in.element_bytes;
  };
  in_rounds(
      intent, splits.largest, piece,
      [&](std::byte* stage, int64_t first, int64_t last) {
        for (int to = 0; to < size; ++to) {
          const auto at = static_cast<size_t>(to);
          if (to != rank)
            copy_bytes(stage + to * piece * in.element_bytes, in.at(splits.sent_at[at] + first),
                       bytes(splits.sent[at], first, last));
        }
      },
      [&](int64_t round, int64_t first, int64_t last) {
        for (int of = 0; of < size; ++of) {
          const auto at = static_cast<size_t>(of);
          const std::byte* const from =
              of == rank ? in.at(splits.sent_at[at] + first)
                         : staging_.half(of, round) + rank * piece * in.element_bytes;
          copy_bytes(out.at(splits.received_at[at] + first), from,
                     bytes(splits.received[at], first, last));
        }
      });
}

void ShmDirect::hand_out(const at::Tensor& tensor, int root, const Intent& intent) {
  const Cut cut = cut_of(tensor);
  in_rounds(
      intent, cut.elements, kHalfBytes / cut.element_bytes,
      [&](std::byte* stage, int64_t first, int64_t last) {
        if (staging_.rank() == root)
          copy_bytes(stage, cut.at(first), (last - first) * cut.element_bytes);
      },
      [&](int64_t round, int64_t first, int64_t last) {
        if (staging_.rank() != root)
          copy_bytes(cut.at(first), staging_.half(root, round),
                     (last - first) * cut.element_bytes);
      });
}

}  // namespace trireme::comm
