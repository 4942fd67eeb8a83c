#include <sys/stat.h>
#include <trireme/base/deadline.h>
#include <trireme/base/process_id.h>
#include <trireme/parallel/shared/update_guard.h>
#include <trireme/plan/shared_layout.h>
#include <unistd.h>
#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>

namespace trireme::shared {
namespace {

constexpr Milliseconds kFinishTimeout{5000};

// The namespace of process numbers. Numbers of different namespaces cannot be compared.
uint64_t process_namespace() {
  struct stat facts {};
  return ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

// Whether the process can still act; a zombie cannot.
bool process_lives(pid_t process) {
  if (::kill(process, 0) != 0) return false;
  const std::vector<std::string> fields = process_stat(process);
  return fields.size() > 3 && fields[3] != "Z" && fields[3] != "X";
}

}  // namespace

struct alignas(plan::kCacheLine) UpdateGuard::Stamp {
  std::atomic<int64_t> copied;   // The number of runs whose memory was copied aside.
  std::atomic<int64_t> done;     // The number of finished runs.
  std::atomic<int32_t> is_over;  // 1 if all runs are finished.
  std::atomic<int32_t> owner;    // The rank that does the runs.
  std::atomic<int32_t> process;  // The process of the stamp's rank.
  uint64_t process_namespace;
};

UpdateGuard::UpdateGuard(std::shared_ptr<comm::HostTeam> team, size_t run_bytes,
                         UpdateGuardOptions options)
    : team_(std::move(team)),
      run_bytes_((run_bytes + plan::kCacheLine - 1) / plan::kCacheLine * plan::kCacheLine),
      options_(std::move(options)) {
  const size_t bytes = static_cast<size_t>(team_->size()) * (2 * sizeof(Stamp) + run_bytes_);
  memory_ = team_->allocate(bytes, bytes, "a copy of the memory in an update");
}

UpdateGuard::Stamp& UpdateGuard::stamp(int rank) const {
  return reinterpret_cast<Stamp*>(memory_->data())[set_ * team_->size() + rank];
}
std::byte* UpdateGuard::aside(int rank) const {
  return memory_->data() + static_cast<size_t>(team_->size()) * 2 * sizeof(Stamp) +
         static_cast<size_t>(rank) * run_bytes_;
}

void UpdateGuard::begin_step() {
  set_ = 1 - set_;
  Stamp& mine = stamp(team_->rank());
  mine.copied.store(0, std::memory_order_relaxed);
  mine.done.store(0, std::memory_order_relaxed);
  mine.is_over.store(0, std::memory_order_relaxed);
  mine.owner.store(team_->rank(), std::memory_order_relaxed);
  mine.process.store(::getpid(), std::memory_order_relaxed);
  if (mine.process_namespace == 0) mine.process_namespace = process_namespace();
}

bool UpdateGuard::begin_run(int rank, int64_t number,
                            std::span<const std::span<std::byte>> regions) {
  Stamp& its = stamp(rank);
  if (number < its.done.load(std::memory_order_acquire)) return false;
  const bool was_begun = its.copied.load(std::memory_order_acquire) > number;
  std::byte* copy = aside(rank);
  for (const auto& region : regions) {
    if (was_begun)
      std::memcpy(region.data(), copy, region.size());
    else
      std::memcpy(copy, region.data(), region.size());
    copy += region.size();
  }
  its.copied.store(number + 1, std::memory_order_release);
  return true;
}

void UpdateGuard::end_run(int rank, int64_t number) {
  stamp(rank).done.store(number + 1, std::memory_order_release);
}
void UpdateGuard::end_shard(int rank) { stamp(rank).is_over.store(1, std::memory_order_release); }

bool UpdateGuard::lives(int rank) const {
  if (options_.lives) return options_.lives(rank);
  const Stamp& its = stamp(rank);
  // The guard cannot look into another namespace, so it takes the process as alive.
  if (its.process_namespace != stamp(team_->rank()).process_namespace) return true;
  return process_lives(its.process.load(std::memory_order_acquire));
}

// Takes over a shard. The rank that takes it over may die as well; then another rank does.
bool UpdateGuard::claim(int rank) {
  int32_t owner = stamp(rank).owner.load(std::memory_order_acquire);
  return !lives(owner) && stamp(rank).owner.compare_exchange_strong(owner, team_->rank());
}

bool UpdateGuard::finish_for_the_lost(const std::function<void(int rank)>& finish) {
  const Deadline deadline = Deadline::after(kFinishTimeout);
  for (int rank = 0; rank < team_->size(); ++rank) {
    while (stamp(rank).is_over.load(std::memory_order_acquire) == 0) {
      if (claim(rank)) {
        finish(rank);
        break;
      }
      if (deadline.expired()) return false;
      std::this_thread::sleep_for(Milliseconds(1));
    }
  }
  return true;
}

}  // namespace trireme::shared
