// The operations between ranks that a step performs, and the bytes that each rank sends in them.
// Pure.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/collective_plan.h>
#include <trireme/plan/placement.h>
#include <trireme/plan/tensor_spec.h>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace trireme::plan {

// The steps in which an operation takes place. Steps count from the engine's first one, which
// is 1.
struct Steps {
  int64_t first = 1;
  int64_t last = -1;  // -1: no end.
  int64_t every = 1;  // Steps first + every - 1, first + 2 every - 1, ...
  // How often the operation takes place in the first `steps` steps.
  int64_t times(int64_t steps) const;
  bool operator==(const Steps&) const = default;
};

// One operation of a step, or several messages of the same content.
struct Operation {
  std::string content;  // "gradients of bucket 0"
  std::string name;     // all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, or send.
  std::string path;     // See Carrier.
  std::string algorithm;  // Empty if the carrier has its own, or if these are messages.
  DType dtype = DType::float32;
  int64_t elements = 0;  // Of the whole tensor; for messages, the sum over all of them.
  Steps steps;
  // [rank]: the operations in which the rank takes part (or the messages that it sends), and the
  // bytes that it sends in them.
  std::vector<int64_t> operations, bytes_sent;

  Json to_json() const;
};

// The operations of a group, of which each rank is a place in `ranks`, as operations of a job.
std::vector<Operation> as_of_job(std::vector<Operation> operations, const std::vector<int>& ranks,
                                 int job_ranks);
// Adds operations of other ranks. Those that are alike, of groups beside each other, become one.
void add_beside(std::vector<Operation>& operations, std::vector<Operation> more);

// Collects the operations of a step over the carriers of a placement.
class OperationPlanner {
 public:
  explicit OperationPlanner(const Placement& placement) : placement_(placement) {}

  // The ranks of the next operations, and their steps.
  enum class Among { all, leaders };  // leaders: the first rank of each host.
  void among(Among ranks) { among_ = ranks; }
  void in(Steps steps) { steps_ = steps; }
  int ranks() const;
  int rank_at(int place) const;  // The rank of the job at a place among these ranks.

  void all_reduce(const std::string& content, DType dtype, int64_t elements);
  // `elements`: of the input.
  void reduce_scatter(const std::string& content, DType dtype, int64_t elements);
  // `elements`: of the result.
  void all_gather(const std::string& content, DType dtype, int64_t elements);
  void broadcast(const std::string& content, DType dtype, int64_t elements);
  // `elements`: of the input of each rank, which has a block of equal size for every rank.
  void all_to_all(const std::string& content, DType dtype, int64_t elements);
  // Messages of equal content and path that follow each other are put together. `from` and `to`
  // are places among these ranks.
  void send(const std::string& content, int from, int to, DType dtype, int64_t elements);

  std::vector<Operation> take() { return std::move(operations_); }

 private:
  const Carrier* flat() const;
  void collective(const Carrier& carrier, Collective collective, const std::string& content,
                  DType dtype, int64_t elements);
  template <typename Sent>
  void between_hosts(const std::string& content, Collective collective, DType dtype,
                     int64_t elements, Sent sent);
  const CollectivePlan& plan_of(const Carrier& carrier, Collective collective, int64_t bytes);
  Operation& add(const std::string& content, const std::string& name, const std::string& path,
                 const std::string& algorithm, DType dtype, int64_t elements);

  const Placement& placement_;
  Among among_ = Among::all;
  Steps steps_;
  std::vector<Operation> operations_;
  std::map<std::pair<const Carrier*, Collective>, SizeChoices> choices_;
  std::map<std::tuple<const Carrier*, Collective, Algorithm>, CollectivePlan> plans_;
};

}  // namespace trireme::plan
