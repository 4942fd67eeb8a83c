// Which worker has which batch of a round, where each works at its own pace. A state machine
// without time, threads or data.
//
// A round is a stretch of batches, such as an epoch. Each batch is a lease: a worker takes it,
// computes, and the lease is done when its push counts. A lease comes back when its worker is lost
// or its push does not count, and another worker takes it. So each batch of a round is done once.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace trireme::plan {

// Used under one lock.
class LeaseTable {
 public:
  // Throws Error(invalid_argument) for a negative number.
  explicit LeaseTable(int64_t leases);

  // The lease that the worker has, or the lowest one that is free; empty: there is none now, and
  // if is_over() there will be none.
  std::optional<int64_t> take(int worker);
  bool has(int worker, int64_t lease) const;
  // Whether the worker has the lease, or has it from now on, because nobody else has it and it is
  // not done: a copy of a table does not know who took which lease.
  bool claim(int worker, int64_t lease);
  // The lease is done, whoever has it. Returns false if it was done before. Throws
  // Error(invalid_argument) for one that is not of this round.
  bool finish(int64_t lease);
  // The worker does not finish what it has.
  void give_back(int worker);
  void give_back_all();
  // Takes no further leases into the round than those that somebody has had; or than the first
  // `limit` ones, if another table says so.
  void stop() { stop_at(next_); }
  void stop_at(int64_t limit);

  bool is_over() const { return done_ == limit_; }
  // Nobody can take a lease now.
  bool is_empty() const { return returned_.empty() && next_ == limit_; }
  int64_t limit() const { return limit_; }  // The number of leases in the round.
  int64_t done() const { return done_; }
  int64_t handed_out() const { return next_; }  // Nobody has had this one, nor those behind it.
  std::optional<int64_t> lease_of(int worker) const;

  // Everything, so that another server can go on.
  Json to_json() const;
  static LeaseTable from_json(const Json& json);
  bool operator==(const LeaseTable&) const = default;

 private:
  bool is_free(int64_t lease);

  int64_t limit_ = 0;
  int64_t next_ = 0;  // From here on nobody has had a lease.
  int64_t done_ = 0;
  // The leases below next_ that are not done.
  std::map<int, int64_t> taken_;  // [worker]
  std::set<int64_t> returned_;
};

}  // namespace trireme::plan
