#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/group.h>
#include <trireme/comm/host/host_team.h>
#include <trireme/comm/kin.h>
#include <trireme/comm/splits.h>
#include <trireme/comm/staging.h>
#include <trireme/plan/collective_plan.h>
#include <trireme/watch/phase_marks.h>
#include <algorithm>
#include <cstddef>

namespace trireme {
namespace {

[[noreturn]] void refuse(std::string_view operation, const std::string& what,
                         std::string_view remedy) {
  throw Error(ErrorCode::invalid_argument, "comm", fmt::format("{}: {}", operation, what), remedy);
}

void check_tensor(std::string_view operation, const at::Tensor& tensor, at::Device device) {
  if (!tensor.defined())
    refuse(operation, "the tensor is undefined", "pass a tensor on every rank");
  if (tensor.device() != device && !comm::can_stage(tensor.device(), device))
    refuse(operation,
           fmt::format("the tensor is on {}, but this group needs tensors on {}",
                       tensor.device().str(), device.str()),
           fmt::format("tensor.to({})", device.str()));
  if (!tensor.is_contiguous())
    refuse(operation, "the tensor is not contiguous", "tensor.contiguous()");
  switch (tensor.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kInt:
    case at::kLong:
    case at::kByte: return;
    default:
      refuse(operation,
             fmt::format("type {} is not supported", c10::toString(tensor.scalar_type())),
             "float32, float64, float16, bfloat16, int32, int64 or uint8");
  }
}

void check_op(std::string_view operation, const at::Tensor& tensor, ReduceOp op) {
  if (op == ReduceOp::mean && !tensor.is_floating_point())
    refuse(operation, "a mean of integers is not defined",
           "ReduceOp::sum, or a floating-point type");
}

void check_rank(std::string_view operation, std::string_view what, int rank, int size) {
  if (rank < 0 || rank >= size)
    refuse(operation, fmt::format("{} {} is outside 0..{}", what, rank, size - 1),
           "a rank of this group");
}

void check_tag(std::string_view operation, int tag) {
  if (tag < 0 || tag > 255)
    refuse(operation, fmt::format("tag {} is outside 0..255", tag), "a smaller tag");
}

// Checks that `large` holds `size` blocks of `small`.
void check_blocks(std::string_view operation, const at::Tensor& small, const at::Tensor& large,
                  int size, at::Device device) {
  check_tensor(operation, large, device);
  if (small.scalar_type() != large.scalar_type())
    refuse(operation,
           fmt::format("input and output differ in type ({}, {})",
                       c10::toString(small.scalar_type()), c10::toString(large.scalar_type())),
           "the same type");
  if (large.numel() != small.numel() * size)
    refuse(
        operation,
        fmt::format("{} elements cannot be {} blocks of {}", large.numel(), size, small.numel()),
        "a tensor of size() blocks");
}

// Checks the tensors of an all_to_all.
void check_exchange(const at::Tensor& input, const at::Tensor& output, at::Device device) {
  check_tensor("all_to_all", input, device);
  check_tensor("all_to_all", output, device);
  if (input.scalar_type() != output.scalar_type())
    refuse("all_to_all",
           fmt::format("input and output differ in type ({}, {})",
                       c10::toString(input.scalar_type()), c10::toString(output.scalar_type())),
           "the same type");
  if (input.device() != output.device()) return;
  const auto* const from = static_cast<const std::byte*>(input.const_data_ptr());
  const auto* const to = static_cast<const std::byte*>(output.const_data_ptr());
  if (from < to + output.nbytes() && to < from + input.nbytes())
    refuse("all_to_all", "input and output overlap in memory", "an output of its own");
}

void check_lengths(std::string_view name, std::string_view whose,
                   const std::vector<int64_t>& lengths, const at::Tensor& tensor, int size) {
  if (lengths.size() != static_cast<size_t>(size))
    refuse("all_to_all",
           fmt::format("'{}' has {} lengths for {} ranks", name, lengths.size(), size),
           "one length for each rank of the group");
  int64_t sum = 0;
  for (const int64_t length : lengths) {
    if (length < 0)
      refuse("all_to_all", fmt::format("'{}' has the length {}", name, length), "0 or more");
    sum += length;
  }
  if (sum != tensor.numel())
    refuse("all_to_all",
           fmt::format("'{}' adds up to {} elements, and the {} has {}", name, sum, whose,
                       tensor.numel()),
           "lengths in elements, which cover the tensor");
}

WorkPtr started(WorkPtr work) {
  work->start();
  return work;
}

// Reports the operation to the watcher of the ranks while a rank waits for it. Its number is its
// place in the order of calls, which is the same on every rank.
class MarkedWork : public Work {
 public:
  MarkedWork(WorkPtr work, std::string_view operation, int64_t bytes, int64_t number, bool some)
      : work_(std::move(work)),
        operation_(operation),
        bytes_(bytes),
        number_(number),
        some_(some) {}
  void start() override { work_->start(); }
  void wait() override {
    const watch::AmongSomeRanks among(some_);
    const watch::CollectiveMark mark(operation_, bytes_, number_);
    work_->wait();
  }
  bool wait_for(Milliseconds patience) override {
    const watch::AmongSomeRanks among(some_);
    const watch::CollectiveMark mark(operation_, bytes_, number_);
    return work_->wait_for(patience);
  }

 private:
  WorkPtr work_;
  const std::string_view operation_;  // A literal.
  const int64_t bytes_, number_;
  const bool some_;
};

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

// For messages: the other ranks of the group do not count them.
constexpr bool kOfTwoRanks = true;

template <typename Make>
WorkPtr marked(bool some, std::string_view operation, const at::Tensor& tensor, Make make) {
  const watch::AmongSomeRanks among(some);
  const int64_t number = watch::next_collective();
  if (number == watch::kUnmarked) return make();
  // Some backends do the whole operation in make().
  const watch::CollectiveMark mark(operation, bytes_of(tensor), number);
  return std::make_unique<MarkedWork>(make(), operation, bytes_of(tensor), number, some);
}

class FinishedWork : public Work {
 public:
  void wait() override {}
  bool wait_for(Milliseconds) override { return true; }
};

}  // namespace

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::mean: return "mean";
    case ReduceOp::max: return "max";
    case ReduceOp::min: return "min";
  }
  return "sum";
}

WorkPtr finished_work() { return std::make_unique<FinishedWork>(); }

at::Tensor Group::shared_tensor(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, type);
}

void Group::Counter::add(int64_t bytes) {
  operations.fetch_add(1, std::memory_order_relaxed);
  bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
}
Traffic Group::Counter::read() const {
  return {operations.load(std::memory_order_relaxed), bytes_sent.load(std::memory_order_relaxed)};
}

Traffic Group::traffic() const { return collectives_.read() + messages_.read(); }
Traffic Group::traffic_of_collectives() const { return collectives_.read(); }

int64_t Group::bytes_sent_in(plan::Collective collective, int64_t elements, int64_t element_bytes,
                             int root) const {
  const int64_t bytes = elements * element_bytes, others = size_ - 1;
  switch (collective) {
    case plan::Collective::all_reduce: return 2 * others * bytes / size_;
    case plan::Collective::reduce_scatter:
    case plan::Collective::all_gather: return others * (bytes / size_);
    case plan::Collective::broadcast: return rank_ == root ? bytes : 0;
    case plan::Collective::all_to_all: return others * (bytes / size_ / size_);
  }
  return 0;
}

void Group::count(plan::Collective collective, int64_t elements, const at::Tensor& like,
                  int root) {
  if (size_ > 1)
    collectives_.add(
        bytes_sent_in(collective, elements, static_cast<int64_t>(like.element_size()), root));
}

// Other ranks of this process may wait in any group. What this rank says comes first.
void Group::abort(const std::string& reason) {
  do_abort(reason);
  if (kin_) kin_->abort(rank_in_world_, reason);
}
void Group::join(std::shared_ptr<comm::Kin> kin, int rank, bool some) {
  kin_ = std::move(kin);
  rank_in_world_ = rank;
  among_some_ranks_ = some;
  if (const auto team = host_team()) team->join(some);
}

WorkPtr Group::all_reduce_async(at::Tensor tensor, ReduceOp op) {
  return started(prepare_all_reduce(tensor, op));
}
WorkPtr Group::reduce_scatter_async(at::Tensor input, at::Tensor output, ReduceOp op) {
  return started(prepare_reduce_scatter(input, output, op));
}
WorkPtr Group::all_gather_async(at::Tensor input, at::Tensor output) {
  return started(prepare_all_gather(input, output));
}
WorkPtr Group::broadcast_async(at::Tensor tensor, int root) {
  return started(prepare_broadcast(tensor, root));
}
WorkPtr Group::all_to_all_async(at::Tensor input, at::Tensor output) {
  return started(prepare_all_to_all(input, output));
}
WorkPtr Group::all_to_all_async(at::Tensor input, at::Tensor output,
                                const std::vector<int64_t>& sent,
                                const std::vector<int64_t>& received) {
  return started(prepare_all_to_all(input, output, sent, received));
}
WorkPtr Group::send_async(at::Tensor tensor, int to, int tag) {
  return started(prepare_send(tensor, to, tag));
}
WorkPtr Group::relay_async(at::Tensor tensor, int to, int tag) {
  return started(prepare_send(tensor, to, tag, /*relayed=*/true));
}
WorkPtr Group::receive_relayed_async(at::Tensor tensor, int from, int tag) {
  return started(prepare_recv(tensor, from, tag, /*relayed=*/true));
}
WorkPtr Group::recv_async(at::Tensor tensor, int from, int tag) {
  return started(prepare_recv(tensor, from, tag));
}

WorkPtr Group::prepare_all_reduce(const at::Tensor& tensor, ReduceOp op) {
  check_tensor("all_reduce", tensor, device());
  check_op("all_reduce", tensor, op);
  count(plan::Collective::all_reduce, tensor.numel(), tensor);
  return marked(among_some_ranks_, "all_reduce", tensor, [&] {
    comm::Staging staging(device());
    return staging.with_results(do_all_reduce(staging.in_place(tensor), op));
  });
}
WorkPtr Group::prepare_reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                      ReduceOp op) {
  check_tensor("reduce_scatter", output, device());
  check_op("reduce_scatter", output, op);
  check_blocks("reduce_scatter", output, input, size_, device());
  count(plan::Collective::reduce_scatter, input.numel(), input);
  return marked(among_some_ranks_, "reduce_scatter", output, [&] {
    comm::Staging staging(device());
    return staging.with_results(
        do_reduce_scatter(staging.input(input), staging.output(output), op));
  });
}
WorkPtr Group::prepare_all_gather(const at::Tensor& input, const at::Tensor& output) {
  check_tensor("all_gather", input, device());
  check_blocks("all_gather", input, output, size_, device());
  count(plan::Collective::all_gather, output.numel(), output);
  return marked(among_some_ranks_, "all_gather", input, [&] {
    comm::Staging staging(device());
    return staging.with_results(do_all_gather(staging.input(input), staging.output(output)));
  });
}
WorkPtr Group::prepare_broadcast(const at::Tensor& tensor, int root) {
  check_tensor("broadcast", tensor, device());
  check_rank("broadcast", "root", root, size_);
  count(plan::Collective::broadcast, tensor.numel(), tensor, root);
  return marked(among_some_ranks_, "broadcast", tensor, [&] {
    comm::Staging staging(device());
    return staging.with_results(do_broadcast(staging.in_place(tensor), root));
  });
}
WorkPtr Group::prepare_all_to_all(const at::Tensor& input, const at::Tensor& output) {
  check_exchange(input, output, device());
  if (input.numel() != output.numel() || input.numel() % size_ != 0)
    refuse("all_to_all",
           fmt::format("{} and {} elements cannot both be {} blocks of one size", input.numel(),
                       output.numel(), size_),
           "tensors of size() equal blocks, or the lengths of the blocks");
  count(plan::Collective::all_to_all, input.numel() * size_, input);
  return marked(among_some_ranks_, "all_to_all", input, [&] {
    comm::Staging staging(device());
    return staging.with_results(
        do_all_to_all(staging.input(input), staging.output(output),
                      comm::Splits::of_equal_blocks(size_, rank_, input.numel() / size_)));
  });
}
WorkPtr Group::prepare_all_to_all(const at::Tensor& input, const at::Tensor& output,
                                  const std::vector<int64_t>& sent,
                                  const std::vector<int64_t>& received) {
  check_exchange(input, output, device());
  check_lengths("sent", "input", sent, input, size_);
  check_lengths("received", "output", received, output, size_);
  return prepare_exchange(input, output, agreed_splits(input, sent, received));
}
WorkPtr Group::prepare_exchange(const at::Tensor& input, const at::Tensor& output,
                                comm::Splits splits) {
  const int64_t own = splits.sent[static_cast<size_t>(rank_)];
  if (size_ > 1)
    collectives_.add((input.numel() - own) * static_cast<int64_t>(input.element_size()));
  return marked(among_some_ranks_, "all_to_all", input, [&] {
    comm::Staging staging(device());
    return staging.with_results(
        do_all_to_all(staging.input(input), staging.output(output), std::move(splits)));
  });
}

// Compares the lengths, and the type of the elements, over all ranks.
comm::Splits Group::agreed_splits(const at::Tensor& input, const std::vector<int64_t>& sent,
                                  const std::vector<int64_t>& received) {
  const int64_t row = 2 * size_ + 1;
  const at::Tensor mine = at::empty({row}, at::kLong), all = at::empty({size_, row}, at::kLong);
  auto* const numbers = mine.mutable_data_ptr<int64_t>();
  std::copy(sent.begin(), sent.end(), numbers);
  std::copy(received.begin(), received.end(), numbers + size_);
  numbers[2 * size_] = static_cast<int64_t>(input.scalar_type());
  all_gather(mine, all);
  const auto of = [&, data = all.const_data_ptr<int64_t>()](int rank, int64_t column) {
    return data[rank * row + column];
  };
  std::vector<std::vector<int64_t>> sent_of(static_cast<size_t>(size_));
  for (int from = 0; from < size_; ++from) {
    if (of(from, 2 * size_) != of(0, 2 * size_))
      refuse("all_to_all",
             fmt::format("rank 0 has elements of {}, rank {} has elements of {}",
                         c10::toString(static_cast<at::ScalarType>(of(0, 2 * size_))), from,
                         c10::toString(static_cast<at::ScalarType>(of(from, 2 * size_)))),
             "tensors of one type on all ranks");
    for (int to = 0; to < size_; ++to) {
      if (of(from, to) != of(to, size_ + from))
        refuse("all_to_all",
               fmt::format("rank {} sends {} elements to rank {}, which expects {}", from,
                           of(from, to), to, of(to, size_ + from)),
               "received[i] on rank j must be sent[j] on rank i");
      sent_of[static_cast<size_t>(from)].push_back(of(from, to));
    }
  }
  return comm::Splits::of(std::move(sent_of), rank_);
}
void Group::exchange(const at::Tensor& input, const at::Tensor& output, comm::Splits splits) {
  prepare_exchange(input, output, std::move(splits))->wait();
}

void Group::gather(const at::Tensor& input, const at::Tensor& output, int root) {
  check_tensor("gather", input, device());
  check_rank("gather", "root", root, size_);
  if (rank_ == root) check_blocks("gather", input, output, size_, device());
  if (size_ > 1) collectives_.add(rank_ == root ? 0 : bytes_of(input));
  const watch::AmongSomeRanks among(among_some_ranks_);
  const watch::CollectiveMark mark("gather", bytes_of(input));
  comm::Staging staging(device());
  do_gather(staging.input(input), rank_ == root ? staging.output(output) : output, root);
  staging.bring_results();
}
WorkPtr Group::prepare_send(const at::Tensor& tensor, int to, int tag, bool relayed) {
  check_tensor("send", tensor, device());
  check_rank("send", "receiver", to, size_);
  if (to == rank_) refuse("send", "a rank cannot send to itself", "copy the tensor");
  if (!relayed) check_tag("send", tag);
  if (!relayed) messages_.add(bytes_of(tensor));
  return marked(kOfTwoRanks, "send", tensor,
                [&] { return do_send(comm::Staging(device()).input(tensor), to, tag); });
}
WorkPtr Group::prepare_recv(const at::Tensor& tensor, int from, int tag, bool relayed) {
  check_tensor("recv", tensor, device());
  check_rank("recv", "sender", from, size_);
  if (from == rank_) refuse("recv", "a rank cannot receive from itself", "copy the tensor");
  if (!relayed) check_tag("recv", tag);
  return marked(kOfTwoRanks, "recv", tensor, [&] {
    comm::Staging staging(device());
    return staging.with_results(do_recv(staging.output(tensor), from, tag));
  });
}
void Group::barrier() {
  const watch::AmongSomeRanks among(among_some_ranks_);
  const watch::CollectiveMark mark("barrier");
  do_barrier();
}

}  // namespace trireme
