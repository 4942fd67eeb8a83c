// The limits of every wait in a group between processes: its time-out, lost workers, and this
// rank's own abort.
#pragma once
#include <trireme/base/deadline.h>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::membership {
class Member;
}

namespace trireme::comm {

// All waits of a group use one object. Any thread.
class WaitLimits {
 public:
  // `workers`: [rank], the worker of each rank of the group. If empty, ranks are workers.
  WaitLimits(std::shared_ptr<membership::Member> member, Milliseconds timeout,
             std::vector<int> workers = {})
      : member_(std::move(member)), timeout_(timeout), workers_(std::move(workers)) {}
  Milliseconds timeout() const { return timeout_; }
  bool is_lost() const;  // True if a worker is lost, or this rank gave up.
  // Throws Error(peer_lost) with the coordinator's report, or Error(aborted) if this rank gave up.
  void throw_if_lost() const;
  // Makes every wait end in Error(aborted) from now on. The first reason stays.
  void give_up(const std::string& reason);
  std::string name_of(int rank) const;  // "worker 1 (host, pid 12)"

  // Throws the error for a broken connection. It first gives the coordinator a moment to report
  // which worker was lost and why, since the coordinator knows more than this side. Without a
  // report the error says `what`.
  [[noreturn]] void explain(std::string_view operation, std::string_view what) const;
  // Throws the error for an expired deadline. `what` names the event that was waited for.
  [[noreturn]] void time_out(std::string_view operation, std::string_view what) const;

 private:
  std::shared_ptr<membership::Member> member_;
  Milliseconds timeout_;
  std::vector<int> workers_;
  std::once_flag gives_up_;
  std::atomic<bool> given_up_{false};
  std::string reason_;  // It is written before given_up_ is set.
};

}  // namespace trireme::comm
