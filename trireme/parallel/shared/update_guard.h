// Guards an update of shared memory: if a rank dies in the middle of its part, other
// ranks finish it.
//
// Each rank updates its shard run by run. Before a run, it copies the memory that the run will
// write, and two stamps record its progress. To finish a shard, another rank restores and repeats
// a run that was begun, and does the runs that were not. Gradients lie in shared memory too, so
// any rank of the host has all that it needs.
#pragma once
#include <trireme/comm/host/host_team.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace trireme::shared {

// The options of the guard; the functions are for tests.
struct UpdateGuardOptions {
  bool wanted = false;
  enum class Moment { copied, updated };  // A moment within a run.
  // May throw, to imitate a process that dies.
  std::function<void(int64_t run, Moment moment)> at_moment;
  // If empty, the guard asks the system whether the rank's process exists.
  std::function<bool(int rank)> lives;
};

class UpdateGuard {
 public:
  // COLLECTIVE over the host. A run writes at most `run_bytes`.
  UpdateGuard(std::shared_ptr<comm::HostTeam> team, size_t run_bytes, UpdateGuardOptions options);

  // Each rank calls it before the meeting that precedes the update.
  void begin_step();
  // Does run `number` of `rank`'s shard, counted from 0 and in order. `update` writes `regions`
  // and nothing else. Skips the run if it was done before.
  template <typename Update>
  void run(int rank, int64_t number, std::span<const std::span<std::byte>> regions,
           Update update) {
    if (!begin_run(rank, number, regions)) return;
    at_moment(number, UpdateGuardOptions::Moment::copied);
    update();
    at_moment(number, UpdateGuardOptions::Moment::updated);
    end_run(rank, number);
  }
  void end_shard(int rank);

  // Call it if a rank was lost after the meeting. Calls finish(rank) for each shard whose rank is
  // gone and that no other rank finishes. Returns true when all shards are done, and false if they
  // are not done in time: the memory is then torn.
  bool finish_for_the_lost(const std::function<void(int rank)>& finish);

 private:
  struct Stamp;
  Stamp& stamp(int rank) const;
  std::byte* aside(int rank) const;
  bool begin_run(int rank, int64_t number, std::span<const std::span<std::byte>> regions);
  void end_run(int rank, int64_t number);
  bool lives(int rank) const;
  bool claim(int rank);
  void at_moment(int64_t run, UpdateGuardOptions::Moment moment) const {
    if (options_.at_moment) options_.at_moment(run, moment);
  }

  std::shared_ptr<comm::HostTeam> team_;
  const size_t run_bytes_;
  const UpdateGuardOptions options_;
  std::shared_ptr<net::SharedMemory> memory_;
  // The stamps of two steps alternate: a rank in the next step must not change the stamps that
  // slower ranks still read.
  int set_ = 0;
};

}  // namespace trireme::shared
