// What the waits of a group between processes end in when they do not come through.
#pragma once
#include <trireme/base/deadline.h>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {
class Member;
}

namespace trireme::comm {

// Shared by all waits of a group. Any thread.
class Losses {
 public:
  // `workers`: by rank of the group. Empty: ranks are workers.
  Losses(std::shared_ptr<launch::Member> member, Milliseconds timeout,
         std::vector<int> workers = {})
      : member_(std::move(member)), timeout_(timeout), workers_(std::move(workers)) {}
  Milliseconds timeout() const { return timeout_; }
  bool is_lost() const;        // Or this rank gave up.
  void throw_if_lost() const;  // Error(peer_lost), as the coordinator tells it, or Error(aborted).
  void give_up(const std::string& reason);  // From now on every wait ends in Error(aborted); the
                                            // first reason stays.
  std::string name_of(int rank) const;      // "worker 1 (host, pid 12)"

  // A connection broke. Gives the coordinator a moment to say who was lost and why, which is more
  // than this side knows; `what` says it otherwise.
  [[noreturn]] void explain(std::string_view operation, std::string_view what) const;
  // The deadline came first. `what` is what was waited for.
  [[noreturn]] void time_out(std::string_view operation, std::string_view what) const;

 private:
  std::shared_ptr<launch::Member> member_;
  Milliseconds timeout_;
  std::vector<int> workers_;
  std::once_flag gives_up_;
  std::atomic<bool> given_up_{false};
  std::string reason_;  // Written before given_up_.
};

}  // namespace trireme::comm
