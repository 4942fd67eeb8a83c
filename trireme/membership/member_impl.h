// The connection of a Member, and what it hears there. Included by its sources alone.
#pragma once
#include <trireme/membership/event_queue.h>
#include <trireme/membership/member.h>
#include <trireme/membership/protocol.h>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace trireme::membership {

struct Member::Impl {
  Impl(net::Endpoint where, std::string secret, Task own_task, int own_generation,
       MemberOptions member_options)
      : coordinator(std::move(where)),
        token(std::move(secret)),
        task(std::move(own_task)),
        generation(own_generation),
        options(std::move(member_options)) {
    if (!options.phases) options.phases = std::make_shared<watch::PhasePage>();
    options.phases->set(Phase::connecting, -1);
    if (!options.events) options.events = std::make_shared<EventQueue>(kEventsOfAHeartbeat);
  }
  ~Impl() { stop_heart(); }

  net::ClientEvents events();
  void receive(const Json& message);
  void coordinator_closed(const std::string& reason);
  void lose(LostWorker who);
  void send(Json message);
  void join(Json who, Facts must_agree, Deadline deadline);
  bool is_worker() const { return task.role == kWorkerRole; }
  void require_worker(const char* what) const;
  void require_role(const std::string& role) const;
  void await_join(Deadline deadline);
  Json request(Json message, const std::string& what, Deadline deadline);
  Json ask(Json message, const std::string& what) {
    return request(std::move(message), what, Deadline::after(options.timeout));
  }
  void beat();
  void send_events();
  void stop_heart();
  Error coordinator_silent(const std::string& what, Deadline deadline) const;

  const net::Endpoint coordinator;
  const std::string token;
  const Task task;
  const int generation;
  MemberOptions options;
  std::vector<Peer> peers;  // Written by the constructor only.
  std::atomic<bool> is_lost{false};
  std::atomic<bool> regroup_wanted{false};
  std::atomic<bool> finish_wanted{false};

  std::mutex mutex;  // Guards the members below.
  std::condition_variable changed;
  std::optional<Json> admission;  // The message joined or refused.
  // The replies to open requests, by id; empty until the reply comes.
  std::map<int64_t, std::optional<Json>> replies;
  int64_t next_request = 1;
  std::optional<LostWorker> lost;
  std::optional<Failure> deadlock;  // It ended this generation, and not a lost worker.
  TaskView tasks;
  bool coordinator_gone = false;
  bool left = false;
  bool heart_stopped = false;

  std::thread heart;
  std::unique_ptr<net::ControlClient> client;  // The last: its thread uses all of the above.
};

}  // namespace trireme::membership
