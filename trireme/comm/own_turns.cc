#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/comm/own_turns.h>
#include <algorithm>
#include <utility>

namespace trireme {
namespace {

constexpr int64_t kNumbersOfTurn = 6;

}  // namespace

std::string LoopTurns::name_of(int64_t part, int64_t what) const {
  if (part >= 0 && part < std::ssize(parts_))
    if (const auto found = parts_[static_cast<size_t>(part)].lock();
        found && what >= 0 && what < std::ssize(found->names))
      return found->names[static_cast<size_t>(what)];
  return "another part of the loop";
}

LoopTurns::Turn LoopTurns::take(const Turn& mine) {
  const at::Tensor own = at::empty({kNumbersOfTurn}, at::kLong);
  auto* const numbers = own.mutable_data_ptr<int64_t>();
  numbers[0] = mine.part;
  numbers[1] = mine.what;
  std::ranges::copy(mine.facts, numbers + 2);
  const at::Tensor all = at::empty({group_->size() * kNumbersOfTurn}, at::kLong);
  group_->all_gather(own, all);
  const auto* const told = all.const_data_ptr<int64_t>();
  Turn found;
  int lowest = -1, without = 0;
  for (int rank = 0; rank < group_->size(); ++rank) {
    const int64_t* const turn = told + rank * kNumbersOfTurn;
    if (turn[0] == kNobody) {
      ++without;
    } else if (lowest < 0) {
      lowest = rank;
      found.part = turn[0];
      found.what = turn[1];
      std::copy_n(turn + 2, found.facts.size(), found.facts.begin());
    } else if (turn[0] != found.part || turn[1] != found.what) {
      throw Error(ErrorCode::invalid_argument, "comm",
                  fmt::format("rank {} has come to {}, and rank {} to {}", lowest,
                              name_of(found.part, found.what), rank, name_of(turn[0], turn[1])),
                  "the same calls on all ranks that have a batch, and join() on a rank that has "
                  "none left");
    }
  }
  if (lowest >= 0) {
    newest_ = lowest;
    some_have_none_ = without > 0;
  }
  return found;
}

void LoopTurns::answer_all() {
  for (Turn turn = take({}); turn.part != kNobody; turn = take({})) {
    const auto part = turn.part < std::ssize(parts_)
                          ? parts_[static_cast<size_t>(turn.part)].lock()
                          : std::shared_ptr<const Part>();
    if (!part)
      throw Error(ErrorCode::invalid_argument, "comm",
                  fmt::format("rank {} waits in {}, which this rank has no more", newest_,
                              name_of(turn.part, turn.what)),
                  "optimizers, records and checkpoints that live as long as the loop");
    part->answer(turn);
  }
}

}  // namespace trireme
