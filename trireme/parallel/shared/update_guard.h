// An update of shared memory that can be finished by others when the rank that ran it dies in the
// middle.
//
// Each rank updates its shard run by run. Before a run, the memory that it will write is copied
// aside, and two stamps say how far it came: a run that was begun is put back and done again, one
// that was not is done. Gradients lie in shared memory too, so any rank of the host has all that it
// takes.
#pragma once
#include <trireme/comm/host/host_team.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace trireme::shared {

// How the guard is used; the functions are for tests.
struct UpdateGuardOptions {
  bool wanted = false;
  enum class Moment { copied, updated };  // Within a run.
  std::function<void(int64_t run, Moment moment)>
      at_moment;                        // May throw, as a process that dies would.
  std::function<bool(int rank)> lives;  // Empty: asks the system whether its process is there.
};

class UpdateGuard {
 public:
  // COLLECTIVE over the host. A run writes at most `run_bytes`.
  UpdateGuard(std::shared_ptr<comm::HostTeam> team, size_t run_bytes, UpdateGuardOptions options);

  // This rank, before the meeting in front of the update.
  void begin_step();
  // Run `number` of `rank`'s shard, counted from 0 and in order: done by `update`, which writes
  // `regions` and nothing else; passed over if it was done before.
  template <typename Update>
  void run(int rank, int64_t number, std::span<const std::span<std::byte>> regions, Update update) {
    if (!begin_run(rank, number, regions)) return;
    at_moment(number, UpdateGuardOptions::Moment::copied);
    update();
    at_moment(number, UpdateGuardOptions::Moment::updated);
    end_run(rank, number);
  }
  void end_shard(int rank);

  // When a rank was lost behind the meeting: calls finish(rank) for each shard whose rank is gone
  // and that nobody else finishes. True when all shards are done; false when that is not so in
  // time: the memory is torn then.
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
  int set_ = 0;  // Of stamps, in turn: who is in the next step already leaves those that slower
                 // ranks look at.
};

}  // namespace trireme::shared
