// The sends and receives of one rank in one round of a collective, all at once. Copies arrive in
// their place. Sums are folded piece by piece while they arrive, so that the network and the
// additions overlap; only one window per peer is held beside the tensor.
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

  // Both ends of a connection must add its pieces in the same order. A send comes before the
  // receive that overwrites its data: a value is replaced only after the old one has been sent. A
  // piece without elements is ignored.
  void send(int to, const std::byte* data, int64_t elements);
  // `target` becomes the fold of the same elements of `sources`, in this order. This rank's own
  // part is the present value of `own`, which may be `target`.
  void receive(const std::vector<int>& sources, std::byte* target, const std::byte* own,
               int64_t elements);

  void queue(std::vector<Link>& links);  // Called once, after all pieces were added.
  // Folds the bytes that have arrived, as far as their place has been sent. True if
  // it did something.
  bool advance_folds();
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
    const std::byte* own;
    int64_t elements;
    // In the order of the fold; null stands for this rank's own part.
    std::vector<Incoming*> sources;
    std::vector<const Outgoing*> senders;  // The sends that still read `target`.
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
