// The messages between workers and coordinator. Every message is an object with "op" and
// "generation".
//
//   worker -> coordinator
//     join         worker, workers, host, pid, must_agree, timeout_ms
//                  answered by joined or refused
//     beat         phase, step, collective, for (nanoseconds), times
//     events       events, dropped (event_queue.h); after a beat and before goodbye
//     goodbye      stopped (whether this worker was asked to stop)
//   worker -> coordinator, with an id; answered by a reply with the same id
//     agree        what, facts, timeout_ms
//     barrier      name, timeout_ms
//     set          key, value
//     get          key, timeout_ms
//     find         key
//     add          key, amount
//     compare_set  key, expected, desired
//     erase        key
//     count
//     cpu_seconds
//     generations
//     times
//   worker -> coordinator, in an elastic job (generations.h)
//     arrive       process, step, reason, facts, host, pid; before join
//                  answered by noted, then by formed, dismissed or failed; by refused if the facts
//                  differ from the job's
//     stepped      step, facts
//     resize       target; answered by resized
//   coordinator -> worker
//     joined       peers: [{worker, host, address, pid}], tasks (with side tasks): [task]
//     refused      error, what, remedy
//     lost         worker, host, pid, phase, step, collective, reason, circumstances, and for a
//                  side task role, index
//     reply        id, and the result or (error, what, remedy)
//     regroup      the worker must arrive after this step
//     formed       number, worker, workers, step, cause, former, steps (with units)
//     failed       error, what, remedy
//     deadlock     error, what, remedy: the workers wait for each other for ever
//   side task -> coordinator (side_tasks.h). Its generation is always kNoGeneration
//     join         role, index, host, pid, must_agree, timeout_ms; answered by joined or refused
//     beat, events, goodbye, and the requests for the store
//   coordinator -> all, about a side task
//     task         role, index, state (absent, present, left, lost), host, address, pid,
//                  incarnation, reason (why it was lost last)
//   coordinator -> side task
//     workers      peers: the workers of the generation that has begun
//     finish       all workers have ended: the side task is to end too
//   launcher of another node <-> coordinator, about the end of the job
//     watch, ended, finish
#pragma once
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/membership/membership.h>
#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace trireme::membership {

// The generation in messages of processes that belong to none.
inline constexpr int kNoGeneration = -1;
// The fact that all processes of a job have in common.
inline constexpr std::string_view kVersionFact = "Trireme's version";

using Facts = std::map<std::string, std::string>;

Json reply_to(int64_t request);
Json reply_to(int64_t request, const Failure& failure);
Json deadlock_message(const Failure& failure);
Json refusal(const Failure& failure);
Json failed(const Failure& failure);  // The message that no generation can form any more.
// The failure that one of these messages carries, if any.
std::optional<Failure> failure_in(const Json& message);

Json lost_message(const LostWorker& lost);
LostWorker lost_from(const Json& message);

// A heartbeat. It tells for how long the worker has been in its phase, not since when: the clocks
// of two hosts differ.
Json beat_message(const PhaseNow& phase, std::chrono::steady_clock::time_point now);
PhaseNow beat_from(const Json& message, std::chrono::steady_clock::time_point now);

// A value of the store as JSON's binary type. Messages are CBOR, which can hold any bytes.
Json bytes(const std::string& value);
std::string bytes_from(const Json& value);

// "worker 1 (host b)", or "worker 1" while the host is unknown.
std::string worker_name(int worker, const std::string& host);
// "a", "a and b", "a, b and c"
std::string enumerate(const std::vector<std::string>& names);

// A sentence about the first key in which two sets of facts differ. It names both sides:
// "optimizer.lr is '0.1' on worker 0 (host a) and '0.2' on worker 1 (host b)".
std::optional<std::string> first_difference(const std::string& one, const Facts& a,
                                            const std::string& other, const Facts& b);

}  // namespace trireme::membership
