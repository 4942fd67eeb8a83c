// The ranks that act together, and their operations: one interface, several backends.
//
// Every operation is COLLECTIVE (send and recv: pairwise): all ranks of the group call the same
// operations in the same order. Tensors are contiguous. Copies of those that are not on device()
// travel (staging.h). Types are float32, float64, float16, bfloat16, int32, int64 or uint8;
// autograd does not record the operations. Every wait ends in Error(timeout) after the group's
// time-out, or earlier in Error(peer_lost) when a peer is known to be lost. After such an error no
// operation succeeds any more. Each rank may be used by one thread at a time.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/deadline.h>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {
namespace comm {
class HostTeam;
class Kin;
struct Splits;
}  // namespace comm
namespace plan {
enum class Collective;
struct Placement;
}  // namespace plan

enum class ReduceOp { sum, mean, max, min };  // mean: floating-point types only.
std::string_view to_string(ReduceOp op);

// An operation in progress, used by one thread at a time. Its tensors must not be touched before
// it is over: wait() has returned, or wait_for() or is_done() has returned true.
class Work {
 public:
  virtual ~Work() = default;  // Does not wait. The group finishes an operation that was started.
  // Starts the operation without waiting for it. Without this call a backend may do all of it in
  // wait(), in the calling thread.
  virtual void start() {}
  virtual void wait() = 0;  // Throws Error(timeout | peer_lost | aborted | invalid_argument).
  // Waits no longer than `patience`, and returns whether the operation is over. If it is not, it
  // goes on and may be awaited again; the group's time-out still applies. Throws as wait() does.
  // The collectives of threads, shm and hybrid are over when the call that starts them returns.
  [[nodiscard]] virtual bool wait_for(Milliseconds patience) = 0;
  // Whether the operation is over. Does not wait. Throws the error of one that failed.
  [[nodiscard]] bool is_done() { return wait_for(Milliseconds(0)); }
};
using WorkPtr = std::unique_ptr<Work>;

struct Traffic {
  int64_t operations = 0;  // Collectives among several ranks, and messages that were sent.
  int64_t bytes_sent = 0;  // The bytes of tensors that went to other ranks in them.
  Traffic operator+(const Traffic& other) const {
    return {operations + other.operations, bytes_sent + other.bytes_sent};
  }
  Traffic operator-(const Traffic& other) const {
    return {operations - other.operations, bytes_sent - other.bytes_sent};
  }
};

class Group {
 public:
  virtual ~Group() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  // "threads", "shm", "tcp", "gloo", "mpi", "nccl" or "hybrid".
  virtual std::string_view backend() const = 0;
  virtual at::Device device() const { return at::kCPU; }

  // Reduces in place. The order of additions depends only on the position in the tensor and on
  // size(), so that repeated runs give the same bits.
  [[nodiscard]] WorkPtr all_reduce_async(at::Tensor tensor, ReduceOp op = ReduceOp::sum);
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) {
    prepare_all_reduce(tensor, op)->wait();
  }
  // `input` has size() x `output` elements. Rank r receives block r of the reduction.
  [[nodiscard]] WorkPtr reduce_scatter_async(at::Tensor input, at::Tensor output,
                                             ReduceOp op = ReduceOp::sum);
  void reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                      ReduceOp op = ReduceOp::sum) {
    prepare_reduce_scatter(input, output, op)->wait();
  }
  // `output` has size() x `input` elements. Block r is the input of rank r.
  [[nodiscard]] WorkPtr all_gather_async(at::Tensor input, at::Tensor output);
  void all_gather(const at::Tensor& input, const at::Tensor& output) {
    prepare_all_gather(input, output)->wait();
  }
  [[nodiscard]] WorkPtr broadcast_async(at::Tensor tensor, int root);
  void broadcast(const at::Tensor& tensor, int root) { prepare_broadcast(tensor, root)->wait(); }
  // `input` and `output` have size() blocks of equal size. Block r of the input goes to rank r,
  // and block r of the output comes from rank r. The two must not overlap.
  [[nodiscard]] WorkPtr all_to_all_async(at::Tensor input, at::Tensor output);
  void all_to_all(const at::Tensor& input, const at::Tensor& output) {
    prepare_all_to_all(input, output)->wait();
  }
  // The same for blocks of any size: sent[r] elements go to rank r, and received[r] elements come
  // from it. The call first compares these numbers over all ranks, in an all_gather for which it
  // waits. If sender and receiver differ, it throws Error(invalid_argument) on every rank.
  [[nodiscard]] WorkPtr all_to_all_async(at::Tensor input, at::Tensor output,
                                         const std::vector<int64_t>& sent,
                                         const std::vector<int64_t>& received);
  void all_to_all(const at::Tensor& input, const at::Tensor& output,
                  const std::vector<int64_t>& sent, const std::vector<int64_t>& received) {
    prepare_all_to_all(input, output, sent, received)->wait();
  }
  // On `root` the output has size() x `input` elements. On other ranks `output` may be undefined;
  // it is not changed.
  void gather(const at::Tensor& input, const at::Tensor& output, int root);
  // `tag` (0..255) distinguishes messages between the same two ranks; messages with equal tags
  // keep their order. If the tensor of recv has another size or type than the sender's, recv
  // throws Error(invalid_argument) naming both and the sender; the message is then gone. (With
  // NCCL, whose messages do not say what they are, that is undefined.)
  [[nodiscard]] WorkPtr send_async(at::Tensor tensor, int to, int tag = 0);
  [[nodiscard]] WorkPtr recv_async(at::Tensor tensor, int from, int tag = 0);
  void send(const at::Tensor& tensor, int to, int tag = 0) {
    prepare_send(tensor, to, tag)->wait();
  }
  void recv(const at::Tensor& tensor, int from, int tag = 0) {
    prepare_recv(tensor, from, tag)->wait();
  }
  void barrier();

  // Whether operations started by *_async continue without this thread, so that it
  // can compute meanwhile.
  virtual bool runs_in_background() const { return false; }
  // COLLECTIVE. Returns an uninitialised tensor in memory that the other ranks of this host can
  // access directly. all_reduce() of it (or of a contiguous part, the same on every rank) then
  // needs no staging copies. If the backend has no such memory, this is an ordinary tensor.
  virtual at::Tensor shared_tensor(at::IntArrayRef sizes, at::ScalarType type);
  // The ranks of this host that share memory with this one, or null if the backend does not know
  // them. Engines keep data common to these ranks there.
  virtual std::shared_ptr<comm::HostTeam> host_team() const { return nullptr; }
  // The number of such teams. On the first rank of each team, between_hosts() is the group that
  // connects the teams; on other ranks it is null.
  virtual int hosts() const { return 1; }
  virtual std::shared_ptr<Group> between_hosts() const { return nullptr; }
  // The hosts of the ranks, and what carries messages between them: the same value on every rank.
  virtual plan::Placement placement() const = 0;

  // The work of this rank in this group since it was made. An operation counts when it is
  // called; a barrier and a receive do not count. The bytes are exact where a CollectivePlan runs:
  // they are its `sends`, also where the others read this rank's memory. Gloo, MPI and NCCL have
  // algorithms of their own, and count as if these were a ring (a broadcast once at its root). A
  // hybrid group counts what its parts do. Any thread.
  virtual Traffic traffic() const;
  Traffic traffic_of_collectives() const;  // The part of traffic() without messages.
  // For a group that consists of groups: send_async() of a message that counts there, and its
  // recv_async(). Tags above 255 are free for these two.
  [[nodiscard]] WorkPtr relay_async(at::Tensor tensor, int to, int tag);
  [[nodiscard]] WorkPtr receive_relayed_async(at::Tensor tensor, int from, int tag);
  // For such a group too: all_to_all() of blocks whose lengths all ranks know already.
  void exchange(const at::Tensor& input, const at::Tensor& output, comm::Splits splits);

  // Makes this rank give up: the waits of the other ranks in this process end in Error(aborted)
  // with `reason`, in this group and in all others that the World made in this generation. Groups
  // without this rank are told which rank of the world it is. Any thread.
  void abort(const std::string& reason);
  // World calls it before it hands out the group to `rank` of the world. `some`: not all ranks of
  // the world are in it.
  void join(std::shared_ptr<comm::Kin> kin, int rank, bool some);

 protected:
  Group(int rank, int size) : rank_(rank), size_(size) {}
  Traffic traffic_of_messages() const { return messages_.read(); }

  // Several threads may start operations.
  struct Counter {
    std::atomic<int64_t> operations{0}, bytes_sent{0};
    void add(int64_t bytes);
    Traffic read() const;
  };

 private:
  // These check the arguments and start nothing.
  WorkPtr prepare_all_reduce(const at::Tensor& tensor, ReduceOp op);
  WorkPtr prepare_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op);
  WorkPtr prepare_all_gather(const at::Tensor& input, const at::Tensor& output);
  WorkPtr prepare_broadcast(const at::Tensor& tensor, int root);
  WorkPtr prepare_all_to_all(const at::Tensor& input, const at::Tensor& output);
  WorkPtr prepare_all_to_all(const at::Tensor& input, const at::Tensor& output,
                             const std::vector<int64_t>& sent,
                             const std::vector<int64_t>& received);
  comm::Splits agreed_splits(const at::Tensor& input, const std::vector<int64_t>& sent,
                             const std::vector<int64_t>& received);
  WorkPtr prepare_exchange(const at::Tensor& input, const at::Tensor& output, comm::Splits splits);
  WorkPtr prepare_send(const at::Tensor& tensor, int to, int tag, bool relayed = false);
  WorkPtr prepare_recv(const at::Tensor& tensor, int from, int tag, bool relayed = false);

  friend class comm::Kin;
  virtual void do_abort(const std::string& reason) = 0;
  // A backend implements these; their arguments have been checked.
  virtual WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) = 0;
  virtual WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) = 0;
  virtual WorkPtr do_all_gather(at::Tensor input, at::Tensor output) = 0;
  virtual WorkPtr do_broadcast(at::Tensor tensor, int root) = 0;
  virtual WorkPtr do_all_to_all(at::Tensor input, at::Tensor output, comm::Splits splits) = 0;
  virtual void do_gather(at::Tensor input, at::Tensor output, int root) = 0;
  virtual WorkPtr do_send(at::Tensor tensor, int to, int tag) = 0;
  virtual WorkPtr do_recv(at::Tensor tensor, int from, int tag) = 0;
  virtual void do_barrier() = 0;
  // The bytes that this rank sends in a collective of this size; it is that of the whole tensor
  // (reduce_scatter's input, all_gather's output, all inputs of an all_to_all of
  // equal blocks). `root` is that of a broadcast. This is the
  // answer for algorithms that are unknown; backends that run plans have their own. Cheap. Any
  // thread.
  virtual int64_t bytes_sent_in(plan::Collective collective, int64_t elements,
                                int64_t element_bytes, int root) const;

  // Every operation passes a prepare_ function or gather(), which count it. What a backend does
  // privately passes neither.
  void count(plan::Collective collective, int64_t elements, const at::Tensor& like, int root = 0);

  int rank_;
  int size_;
  Counter collectives_, messages_;
  std::shared_ptr<comm::Kin> kin_;
  int rank_in_world_ = 0;  // Known if kin_ is.
  bool among_some_ranks_ = false;
};

// An operation that was already finished when it was started.
WorkPtr finished_work();

}  // namespace trireme
