// The turns of a training loop whose ranks may have unequal numbers of batches (OwnSteps::join()).
// Before each operation of all ranks, they tell each other to which one they have come. A rank
// without batches takes part in that of the others.
#pragma once
#include <trireme/comm/group.h>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

// One thread uses it.
class LoopTurns {
 public:
  static constexpr int64_t kNobody = -1;
  struct Turn {
    int64_t part = kNobody;  // The place in `parts`. kNobody: this rank has no batches left.
    int64_t what = 0;        // The place in Part::names.
    std::array<int64_t, 4> facts = {};
  };
  // A part of the loop: an engine, a record, a checkpoint. All ranks make them in the same order.
  struct Part {
    std::vector<std::string> names;           // Of its operations, for messages.
    std::function<void(const Turn&)> answer;  // Takes part in an operation, without a batch.
  };
  using Parts = std::vector<std::weak_ptr<const Part>>;

  // `parts` outlives it.
  LoopTurns(std::shared_ptr<Group> group, const Parts& parts)
      : group_(std::move(group)), parts_(parts) {}

  // COLLECTIVE. Returns the turn of the ranks that have batches, with the facts of the lowest one.
  // Its part is kNobody if no rank has. Throws Error(invalid_argument) on every rank, naming two
  // ranks, if they come to different operations.
  Turn take(const Turn& mine);
  // For a rank without batches: takes part in the turns of the others until none has batches.
  void answer_all();

  // In the newest turn of a rank with batches: that rank (the lowest), and whether others had
  // none.
  int newest() const { return newest_; }
  bool some_have_none() const { return some_have_none_; }

 private:
  std::string name_of(int64_t part, int64_t what) const;

  const std::shared_ptr<Group> group_;
  const Parts& parts_;
  int newest_ = 0;
  bool some_have_none_ = false;
};

}  // namespace trireme
