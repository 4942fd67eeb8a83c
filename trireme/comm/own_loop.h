// The parts of a loop of the user's own know each other by this: its engines (Distributed,
// DataParallel), its loaders, its Checkpoint and its LoopRecord. A World has one.
#pragma once
#include <trireme/comm/own_turns.h>
#include <trireme/watch/phase.h>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

class World;

// The thread of the loop uses it.
struct OwnLoop {
  World* world = nullptr;  // The World's place now: it may have been moved.
  struct BatchInHand {
    // This rank's samples, by which its gradients count, and those of all ranks. 0 of all ranks:
    // not known, and every rank counts alike.
    int64_t samples = 1, of_all = 0;
    uint64_t indices = 0;          // A hash of the samples of all ranks; 0: not known.
    const void* loader = nullptr;  // Null: none of make_data_loader().
    double weight = -1;            // The weight by World::weigh(); below 0: the samples count.
  };
  BatchInHand batch;
  int engines = 0;  // The engines that were made so far; and the same of loaders.
  int loaders = 0;
  int replicas = 0;               // Those of DataParallel.
  int backwards_of_replicas = 0;  // The backward passes under way that a DataParallel has begun.
  bool regroup = false;           // All ranks know that they meet again after this step.
  bool stop = false;              // All ranks know that one was asked to stop.
  bool is_elastic = false;        // It runs inside run_elastic().
  // Whether this process is asked to stop; null: the loop does not listen.
  std::function<bool()> wants_stop;
  // Called as long as they live: before another batch is in hand; by leave(), which compares the
  // facts over all ranks before it says goodbye, and then throws an Error of such a call; and in
  // each new generation of an elastic job, in this order (train/own_checkpoint.h).
  std::vector<std::weak_ptr<const std::function<void(const BatchInHand& next)>>> before_batch;
  std::vector<std::weak_ptr<const std::function<void()>>> before_leave, rebind;
  std::map<std::string, std::string> facts_at_the_end;
  void take_batch(const BatchInHand& next);
  // The weight of this rank's gradients in the sum over all ranks.
  double weight_of(const BatchInHand& some) const;
  double weight() const { return weight_of(batch); }

  // The part that tells the ends of steps: of those that are there and have told one, the last in
  // this list. Of several engines it is the first.
  enum class Teller { engine, record, checkpoint };
  // `who` has finished `step` steps. Returns whether it tells the ends of steps.
  bool end_step(const std::shared_ptr<const void>& who, Teller kind, int64_t step);
  // A step more than now.
  bool end_step(const std::shared_ptr<const void>& who) {
    return end_step(who, Teller::engine, steps_ + 1);
  }
  // The records and checkpoints that are there. Their operations are of all ranks.
  int meetings = 0;
  bool has_left = false;  // World::leave() was called.
  // Throws Error(invalid_argument) that names `call` behind leave().
  void require_not_left(const char* call) const;
  // Throws Error(invalid_argument) if the job is elastic, and the loop is not.
  void require_elastic() const;
  // Null unless ranks may have unequal numbers of batches (OwnStepsOptions::joins).
  std::unique_ptr<LoopTurns> turns;
  LoopTurns::Parts parts;   // Those that are gone keep their place.
  bool has_joined = false;  // This rank has no batches any more.
  // Called in this order, with a rank, when all ranks take that rank's state.
  std::vector<std::weak_ptr<const std::function<void(int root)>>> take_state;
  // Returns the number of the part.
  int64_t add(const std::shared_ptr<const LoopTurns::Part>& part);
  // COLLECTIVE, if there are turns. Every operation of all ranks begins with it.
  void begin(int64_t part, int64_t what, const std::array<int64_t, 4>& facts = {});
  // COLLECTIVE, with turns. This rank has no batches until all ranks have none; then all take the
  // state of the rank that came last.
  void join();

  // The state of another step was loaded.
  void go_on_from(int64_t step);
  int64_t steps() const { return steps_; }    // Those that are finished, also before a resume.
  int64_t loads() const { return loads_; }    // The number of calls of go_on_from(),
  int64_t origin() const { return origin_; }  // and the step of the newest one.

  // The process comes to a phase of the step under way. Heartbeats and the launcher know it then,
  // and injected faults strike. Nothing happens once the World is gone.
  void enter(Phase phase);
  std::function<void(Phase phase, int64_t step)> strike;  // May be null.

 private:
  int64_t steps_ = 0, loads_ = 0, origin_ = 0;
  std::weak_ptr<const void> teller_;
  Teller kind_ = Teller::engine;
};

}  // namespace trireme
