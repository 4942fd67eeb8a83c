// What one rank sends and receives in one round of a collective, all at once. Copies arrive in
// their place; sums are folded piece by piece while they arrive, so that the network and the
// additions overlap and no more than a window a peer is held beside the tensor.
#pragma once
#include <trireme/comm/tcp/link.h>
#include <trireme/comm/threads/reduce_kernel.h>
#include <trireme/plan/tensor_spec.h>
#include <cstdint>
#include <deque>
#include <vector>

namespace trireme::comm {

class Round {
 public:
  Round(int rank, plan::DType dtype, Fold fold) : rank_(rank), dtype_(dtype), fold_(fold) {}

  // On one connection, pieces must be added in the same order on both of its ends. Sends come
  // before what overwrites them: a value is replaced only as far as the old one has been sent.
  // Nothing is done for no elements.
  void send(int to, const std::byte* data, int64_t elements);
  // `target` becomes the fold of the same elements of `sources`, in this order; this rank's own
  // part is what `target` holds.
  void receive(const std::vector<int>& sources, std::byte* target, int64_t elements);

  void queue(std::vector<Link>& links);  // Once, after all was added.
  bool advance_folds();  // As far as bytes have come and gone. True if it did something.
  bool finished() const;

 private:
  struct Sending {
    int to;
    Outgoing piece;
  };
  struct Receiving {
    int from;
    Incoming piece;
  };
  struct Folding {
    std::byte* target;
    int64_t elements;
    std::vector<Incoming*> sources;  // In the order of the fold; null is this rank's own part.
    std::vector<const Outgoing*> senders;  // They still read `target`.
    int64_t done = 0;
  };
  bool advance(Folding& folding);

  const int rank_;
  const plan::DType dtype_;
  const Fold fold_;
  // Links point into these.
  std::deque<Sending> sends_;
  std::deque<Receiving> receives_;
  std::vector<Folding> folds_;
};

}  // namespace trireme::comm
