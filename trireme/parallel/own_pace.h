// The seam of engines whose ranks compute whole batches at their own pace, instead of steps
// together. Batches are handed out in rounds, such as the rest of an epoch: when a round ends, all
// of its batches are done, each once, and the ranks meet.
#pragma once
#include <trireme/data/batch.h>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace trireme {

// A batch that counts.
struct CountedPass {
  int64_t number = 0;          // In the round, from 0.
  int rank = 0;                // The one that computed it.
  std::optional<double> loss;  // Its mean loss. Empty: it was skipped, as it was not finite.
  int64_t samples = 0;
};

struct RoundRequest {
  int64_t id = 0;       // Larger in each round. A round that was interrupted goes on by its id.
  int64_t batches = 0;  // In the round.
  int passes = 1;       // Micro-batches.
  // Loads a batch by its number, and prepares for its pass (random numbers).
  std::function<Batch(int64_t number)> load;
  std::function<std::vector<double>()> rates;  // The learning rates of the next update.
  // Called on every rank for each batch that counts, in the order of updates.
  std::function<void(const CountedPass&)> counted;
};

struct RoundEnd {
  int64_t batches = 0;                 // Fewer than asked for, if the round was to end early.
  bool stop = false, regroup = false;  // Some rank has asked for it (Wishes).
};

class OwnPace {
 public:
  virtual ~OwnPace() = default;
  // Returns when all batches of the round are done; the same on all ranks. If a rank is lost it
  // throws Error(peer_lost) once this rank's batch counts.
  virtual RoundEnd round(const RoundRequest& request) = 0;
};

}  // namespace trireme
