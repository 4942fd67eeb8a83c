// Groups of every backend inside one test process. A thread of its own calls each rank.
#pragma once
#include <ATen/ATen.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/threads/thread_group.h>
#include <trireme/comm/world.h>
#include <trireme/membership/coordinator.h>
#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace trireme::tests {

using Groups = std::vector<std::shared_ptr<Group>>;

// A table that takes one algorithm for every collective that has it, at any size.
inline plan::CollectiveTable always(plan::Algorithm algorithm) {
  plan::CollectiveTable table;
  for (const plan::Collective collective : plan::all_collectives()) {
    const auto fits = plan::algorithms_of(collective);
    if (std::find(fits.begin(), fits.end(), algorithm) != fits.end())
      table.always(collective, algorithm);
  }
  return table;
}

// Runs `body(i)` on `count` threads, then throws the first error that did not result
// from another one.
template <typename Body>
void on_threads(int count, Body body) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      set_thread_rank(i, count);
      try {
        body(i);
      } catch (...) {
        errors[static_cast<size_t>(i)] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  std::exception_ptr consequence;
  for (const auto& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const Error& known) {
      if (known.code() != ErrorCode::aborted && known.code() != ErrorCode::peer_lost) throw;
      consequence = error;
    }
  }
  if (consequence) std::rethrow_exception(consequence);
}

// Runs `body(group)` for every rank at once. A rank that fails aborts the other ranks
// of its process.
template <typename Body>
void on_ranks(const Groups& groups, Body body) {
  on_threads(static_cast<int>(groups.size()), [&](int rank) {
    Group& group = *groups[static_cast<size_t>(rank)];
    try {
      body(group);
    } catch (const std::exception& error) {
      group.abort(error.what());
      throw;
    }
  });
}

// The end of a rank's `body(group)`: the code and message of its Error, or {} if it succeeded.
struct Ending {
  bool failed = false;
  ErrorCode code = ErrorCode::internal;
  std::string what;
};
template <typename Body>
std::vector<Ending> endings_of(const Groups& groups, Body body) {
  std::vector<Ending> endings(groups.size());
  on_threads(static_cast<int>(groups.size()), [&](int rank) {
    try {
      body(*groups[static_cast<size_t>(rank)]);
    } catch (const Error& error) {
      endings[static_cast<size_t>(rank)] = {true, error.code(), error.what()};
    }
  });
  return endings;
}

inline WorldOptions world_options(Milliseconds timeout = Milliseconds(20000)) {
  WorldOptions options;
  options.timeout = timeout;
  options.heartbeat_interval = Milliseconds(50);
  return options;
}

// Several workers of one job, as threads. Each has an environment of its own, and they
// meet over loopback.
class Workers {
 public:
  // `hosts`: [worker], if the workers play several hosts.
  explicit Workers(int count, WorldOptions options = world_options(),
                   const std::vector<std::string>& hosts = {},
                   Milliseconds stall_timeout = Milliseconds(10000))
      : coordinator_(std::make_unique<membership::Coordinator>(
            net::Endpoint{"127.0.0.1", 0}, kToken, rules(count, options.timeout, stall_timeout))) {
    for (int worker = 0; worker < count; ++worker) {
      if (!hosts.empty()) options.host = hosts[static_cast<size_t>(worker)];
      worlds_.push_back(std::make_unique<World>(World::join(options, environment(worker, count))));
    }
  }

  int count() const { return static_cast<int>(worlds_.size()); }
  World& operator[](int worker) { return *worlds_[static_cast<size_t>(worker)]; }
  membership::Coordinator& coordinator() { return *coordinator_; }
  Environment environment(int worker, int workers) const {
    return Environment({{"TRIREME_WORKER", std::to_string(worker)},
                        {"TRIREME_WORKERS", std::to_string(workers)},
                        {"TRIREME_LOCAL_WORKER", std::to_string(worker)},
                        {"TRIREME_LOCAL_WORKERS", std::to_string(workers)},
                        {"TRIREME_RENDEZVOUS", coordinator_->endpoint().describe()},
                        {"TRIREME_JOB_TOKEN", kToken}});
  }

  // Runs `body(world)` for every worker at once.
  template <typename Body>
  void on_each(Body body) {
    on_threads(count(), [&](int worker) { body((*this)[worker]); });
  }
  // All ranks of all workers, in order.
  Groups make_groups(int replicas = 1) {
    std::vector<Groups> made(worlds_.size());
    on_each([&](World& world) {
      made[static_cast<size_t>(world.worker())] = world.make_groups(replicas);
    });
    Groups all;
    for (auto& groups : made) all.insert(all.end(), groups.begin(), groups.end());
    return all;
  }
  void leave() {
    on_each([](World& world) { world.leave(); });
  }
  // It leaves without a goodbye.
  void vanish(int worker) { worlds_[static_cast<size_t>(worker)].reset(); }

  static constexpr const char* kToken = "a token of this test";

 private:
  static membership::MembershipOptions rules(int workers, Milliseconds timeout,
                                             Milliseconds stall_timeout) {
    membership::MembershipOptions rules;
    rules.workers = workers;
    rules.join_timeout = timeout;
    rules.stall_timeout = stall_timeout;
    return rules;
  }

  std::unique_ptr<membership::Coordinator> coordinator_;
  std::vector<std::unique_ptr<World>> worlds_;
};

inline Groups thread_groups(int size, plan::Algorithm algorithm = plan::Algorithm::direct,
                            Milliseconds timeout = Milliseconds(20000)) {
  comm::ThreadGroupOptions options;
  options.table.always(plan::Collective::all_reduce, algorithm);
  options.timeout = timeout;
  return comm::make_thread_groups(size, options);
}

}  // namespace trireme::tests
