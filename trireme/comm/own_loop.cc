#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/comm/own_loop.h>
#include <trireme/comm/world.h>
#include <iterator>

namespace trireme {

void OwnLoop::take_batch(const BatchInHand& next) {
  for (const auto& each : before_batch)
    if (const auto call = each.lock()) (*call)(next);
  batch = next;
}

double OwnLoop::weight_of(const BatchInHand& some) const {
  if (some.weight >= 0) return some.weight;
  return some.of_all > 0 ? static_cast<double>(some.samples) / static_cast<double>(some.of_all)
                         : 1.0 / world->size();
}

bool OwnLoop::end_step(const std::shared_ptr<const void>& who, Teller kind, int64_t step) {
  if (teller_.expired() || kind > kind_) {
    teller_ = who;
    kind_ = kind;
  }
  if (teller_.lock() != who) return false;
  steps_ = step;
  return true;
}

int64_t OwnLoop::add(const std::shared_ptr<const LoopTurns::Part>& part) {
  parts.emplace_back(part);
  return std::ssize(parts) - 1;
}

void OwnLoop::begin(int64_t part, int64_t what, const std::array<int64_t, 4>& facts) {
  if (turns && !has_joined) turns->take({part, what, facts});
}

void OwnLoop::join() {
  has_joined = true;
  const std::shared_ptr<void> until_the_end(nullptr, [this](void*) { has_joined = false; });
  turns->answer_all();
  for (const auto& each : take_state)
    if (const auto call = each.lock()) (*call)(turns->newest());
}

void OwnLoop::go_on_from(int64_t step) {
  steps_ = origin_ = step;
  ++loads_;
}

void OwnLoop::require_not_left(const char* call) const {
  if (has_left)
    throw Error(
        ErrorCode::invalid_argument, "comm",
        fmt::format("{}step {}: {} of all ranks behind World::leave(): this rank has said "
                    "goodbye to the others",
                    world ? fmt::format("rank {}, ", world->rank()) : "", steps_ + 1, call),
        "leave() behind the last step, evaluation and checkpoint");
}

void OwnLoop::require_elastic() const {
  if (is_elastic || world == nullptr || !world->is_elastic()) return;
  throw Error(ErrorCode::invalid_argument, "comm",
              fmt::format("rank {}, step {}: the job is elastic (--elastic), and this loop does "
                          "not run inside run_elastic(): it would end with a lost worker, and "
                          "begin again at step 1",
                          world->rank(), steps_ + 1),
              "trireme::run_elastic(world, checkpoint, loop), or a job without --elastic");
}

void OwnLoop::enter(Phase phase) {
  if (world == nullptr) return;
  world->set_phase(phase, steps_ + 1);
  if (strike) strike(phase, steps_ + 1);
}

}  // namespace trireme
