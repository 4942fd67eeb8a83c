// A coordinator and its members in one process, each member called by a thread of its own.
#pragma once
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/membership/coordinator.h>
#include <trireme/membership/member.h>
#include <thread>
#include <vector>

namespace trireme::membership {

inline const net::Endpoint kAnyPort{"127.0.0.1", 0};
inline const std::string kToken = "secret";
inline Deadline soon() { return Deadline::after(Milliseconds(10000)); }
inline MembershipOptions options_for(int workers) { return {.workers = workers, .generation = 5}; }

// Runs `body(worker)` on a thread for each worker.
template <typename Body>
void on_each(int workers, Body body) {
  std::vector<std::thread> threads;
  for (int worker = 0; worker < workers; ++worker)
    threads.emplace_back([&body, worker] { body(worker); });
  for (auto& thread : threads) thread.join();
}

struct TestJob {
  explicit TestJob(int workers,
                   MemberOptions member_options = {.timeout = Milliseconds(10000),
                                                   .heartbeat_interval = Milliseconds(20)})
      : options(member_options),
        members(static_cast<size_t>(workers)),
        coordinator(kAnyPort, kToken, options_for(workers)) {}

  std::unique_ptr<Member> join(int worker, std::map<std::string, std::string> must_agree = {}) {
    return std::make_unique<Member>(coordinator.endpoint(), kToken, worker,
                                    static_cast<int>(members.size()), 5, std::move(must_agree),
                                    options);
  }
  void join_all() {
    on_each(static_cast<int>(members.size()),
            [this](int worker) { members[static_cast<size_t>(worker)] = join(worker); });
  }
  Member& operator[](int worker) { return *members[static_cast<size_t>(worker)]; }

  const MemberOptions options;
  std::vector<std::unique_ptr<Member>> members;
  Coordinator coordinator;
};

// Returns the error that `call` throws.
template <typename Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "it ended without an error";
  return Error(ErrorCode::internal, "test", "no error");
}

// Waits until `condition` holds. Returns false after ten seconds.
template <typename Condition>
bool eventually(Condition condition) {
  for (const Deadline deadline = soon(); !deadline.expired();
       std::this_thread::sleep_for(Milliseconds(1))) {
    if (condition()) return true;
  }
  return condition();
}

}  // namespace trireme::membership
