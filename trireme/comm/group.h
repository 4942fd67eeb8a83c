// The ranks that act together, and what they can do: one interface, several carriers.
//
// Every operation is COLLECTIVE (send and recv: pairwise): all ranks of the group call the same
// operations in the same order. Tensors are contiguous, on device() (the CPU, but for NCCL), of
// float32, float64, float16, bfloat16, int32, int64 or uint8; autograd records nothing of what
// happens to them. Every wait ends by the group's time-out in Error(timeout), or earlier in
// Error(peer_lost) once a peer is known to be lost; no operation comes through after that. One
// thread at a time per rank.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/deadline.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {
namespace comm {
class HostTeam;
}

enum class ReduceOp { sum, mean, max, min };  // mean: floating-point types only.
std::string_view to_string(ReduceOp op);

// An operation under way. The tensors it uses must not be touched before wait() returns.
class Work {
 public:
  virtual ~Work() = default;  // Waits for nothing; what was started is finished by the group.
  virtual void start() {}  // Lets it go on without being waited for. Until then a backend may leave
                           // it to wait(), in the thread that calls it.
  virtual void wait() = 0;  // Throws Error(timeout | peer_lost | aborted).
};
using WorkPtr = std::unique_ptr<Work>;

class Group {
 public:
  virtual ~Group() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual std::string_view backend()
      const = 0;  // "threads", "shm", "tcp", "gloo", "mpi", "nccl", "hybrid"
  virtual at::Device device() const { return at::kCPU; }

  // In place. The order of additions depends on the position in the tensor and on size() only, so
  // runs repeat bit for bit.
  [[nodiscard]] WorkPtr all_reduce_async(at::Tensor tensor, ReduceOp op = ReduceOp::sum);
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) {
    prepare_all_reduce(tensor, op)->wait();
  }
  // `input` has size() x `output` elements; block r of the reduction arrives on rank r.
  [[nodiscard]] WorkPtr reduce_scatter_async(at::Tensor input, at::Tensor output,
                                             ReduceOp op = ReduceOp::sum);
  void reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                      ReduceOp op = ReduceOp::sum) {
    prepare_reduce_scatter(input, output, op)->wait();
  }
  // `output` has size() x `input` elements; block r is rank r's input.
  [[nodiscard]] WorkPtr all_gather_async(at::Tensor input, at::Tensor output);
  void all_gather(const at::Tensor& input, const at::Tensor& output) {
    prepare_all_gather(input, output)->wait();
  }
  [[nodiscard]] WorkPtr broadcast_async(at::Tensor tensor, int root);
  void broadcast(const at::Tensor& tensor, int root) { prepare_broadcast(tensor, root)->wait(); }
  // On `root`: output has size() x `input` elements. Elsewhere `output` may be undefined and is
  // left alone.
  void gather(const at::Tensor& input, const at::Tensor& output, int root);
  // `tag` tells messages between the same two ranks apart: 0..255. Between equal tags, order is
  // kept. recv's tensor has the sender's size and type.
  [[nodiscard]] WorkPtr send_async(at::Tensor tensor, int to, int tag = 0);
  [[nodiscard]] WorkPtr recv_async(at::Tensor tensor, int from, int tag = 0);
  void send(const at::Tensor& tensor, int to, int tag = 0) {
    prepare_send(tensor, to, tag)->wait();
  }
  void recv(const at::Tensor& tensor, int from, int tag = 0) {
    prepare_recv(tensor, from, tag)->wait();
  }
  void barrier();

  // Whether what *_async starts goes on without this thread, so that it can compute meanwhile.
  virtual bool runs_in_background() const { return false; }
  // COLLECTIVE. A tensor that the other ranks of this host reach where it lies, so that
  // all_reduce() of it (or of a contiguous part, the same on every rank) copies nothing twice;
  // uninitialised. An ordinary tensor where the carrier has no such memory.
  virtual at::Tensor shared_tensor(at::IntArrayRef sizes, at::ScalarType type);
  // The ranks of this host that share memory with this one, if the carrier knows: engines keep what
  // is common there.
  virtual std::shared_ptr<comm::HostTeam> host_team() const { return nullptr; }
  // How many such teams there are, and on the first rank of each the group through which they
  // speak; else null.
  virtual int hosts() const { return 1; }
  virtual std::shared_ptr<Group> between_hosts() const { return nullptr; }

  // This rank gives up: the others' waits in this process end with Error(aborted) that carries
  // `reason`. Any thread.
  virtual void abort(const std::string& reason) = 0;

 protected:
  Group(int rank, int size) : rank_(rank), size_(size) {}

 private:
  // Arguments are checked, nothing is started.
  WorkPtr prepare_all_reduce(const at::Tensor& tensor, ReduceOp op);
  WorkPtr prepare_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op);
  WorkPtr prepare_all_gather(const at::Tensor& input, const at::Tensor& output);
  WorkPtr prepare_broadcast(const at::Tensor& tensor, int root);
  WorkPtr prepare_send(const at::Tensor& tensor, int to, int tag);
  WorkPtr prepare_recv(const at::Tensor& tensor, int from, int tag);

  // What a backend implements; arguments have been checked.
  virtual WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) = 0;
  virtual WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) = 0;
  virtual WorkPtr do_all_gather(at::Tensor input, at::Tensor output) = 0;
  virtual WorkPtr do_broadcast(at::Tensor tensor, int root) = 0;
  virtual void do_gather(at::Tensor input, at::Tensor output, int root) = 0;
  virtual WorkPtr do_send(at::Tensor tensor, int to, int tag) = 0;
  virtual WorkPtr do_recv(at::Tensor tensor, int from, int tag) = 0;
  virtual void do_barrier() = 0;

  int rank_;
  int size_;
};

// An operation that was finished when it was started.
WorkPtr finished_work();

}  // namespace trireme
