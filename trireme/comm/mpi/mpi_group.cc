#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/blocks.h>
#include <trireme/comm/mpi/mpi_calls.h>
#include <trireme/comm/mpi/mpi_group.h>
#include <trireme/comm/mpi/mpi_reduction.h>
#include <trireme/comm/operation_queue.h>
#include <trireme/comm/splits.h>
#include <trireme/comm/wait_limits.h>
#include <trireme/launch/member.h>
#include <trireme/plan/placement.h>
#include <limits>
#include <map>

namespace trireme::comm {
namespace {

// Keeps the tensors of a failed wait for good, since MPI may still read and write them.
void leave_to_mpi(std::vector<at::Tensor> tensors) {
  static std::mutex mutex;
  static auto* const left = new std::vector<at::Tensor>;
  const std::lock_guard lock(mutex);
  left->insert(left->end(), tensors.begin(), tensors.end());
}

int in_range(int64_t count, const char* of_what) {
  if (count > std::numeric_limits<int>::max())
    throw Error(ErrorCode::unsupported, "comm",
                fmt::format("MPI counts up to 2^31-1, and the tensor has {} {}", count, of_what),
                "smaller tensors, or comm.backend: auto");
  return static_cast<int>(count);
}
std::vector<int> in_ints(const std::vector<int64_t>& counts) {
  std::vector<int> ints;
  for (const int64_t count : counts) ints.push_back(in_range(count, "elements"));
  return ints;
}
int count_of(const at::Tensor& tensor) { return in_range(tensor.numel(), "elements"); }

class MpiGroup : public Group {
 public:
  MpiGroup(std::shared_ptr<WaitLimits> limits, int rank, int size, MPI_Comm ranks)
      : Group(rank, size), limits_(std::move(limits)), ranks_(ranks) {}

  std::string_view backend() const override { return "mpi"; }
  bool runs_in_background() const override { return true; }
  plan::Placement placement() const override { return plan::each_alone(size(), "mpi"); }
  void abort(const std::string& reason) override { limits_->give_up(reason); }

 private:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    return queue_.add([this, tensor, op] {
      complete("all_reduce", {tensor}, [&](MPI_Request* request) {
        const MPI_Op reduction = mpi_op_of(tensor.scalar_type(), op);
        return call_mpi(MPI_Iallreduce, MPI_IN_PLACE, tensor.mutable_data_ptr(), count_of(tensor),
                        type_of(tensor), reduction, ranks_, request);
      });
      if (op == ReduceOp::mean) tensor.div_(size());
    });
  }

  WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) override {
    return queue_.add([this, input, output, op] {
      const at::Tensor block = at::empty_like(output);  // `output` may be part of `input`.
      complete("reduce_scatter", {input, block}, [&](MPI_Request* request) {
        const MPI_Op reduction = mpi_op_of(block.scalar_type(), op);
        return call_mpi(MPI_Ireduce_scatter_block, input.const_data_ptr(),
                        block.mutable_data_ptr(), count_of(block), type_of(block), reduction,
                        ranks_, request);
      });
      output.copy_(block);
      if (op == ReduceOp::mean) output.div_(size());
    });
  }

  WorkPtr do_all_gather(at::Tensor input, at::Tensor output) override {
    return queue_.add([this, input, output] {
      put_block(output, input, rank());
      complete("all_gather", {output}, [&](MPI_Request* request) {
        return call_mpi(MPI_Iallgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL,
                        output.mutable_data_ptr(), count_of(input), type_of(output), ranks_,
                        request);
      });
    });
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    return queue_.add([this, tensor, root] {
      complete("broadcast", {tensor}, [&](MPI_Request* request) {
        return call_mpi(MPI_Ibcast, tensor.mutable_data_ptr(), count_of(tensor), type_of(tensor),
                        root, ranks_, request);
      });
    });
  }

  WorkPtr do_all_to_all(at::Tensor input, at::Tensor output, Splits splits) override {
    return queue_.add([this, input, output, splits = std::move(splits)] {
      const std::vector<int> sent = in_ints(splits.sent), sent_at = in_ints(splits.sent_at),
                             received = in_ints(splits.received),
                             received_at = in_ints(splits.received_at);
      complete("all_to_all", {input, output}, [&](MPI_Request* request) {
        return call_mpi(MPI_Ialltoallv, input.const_data_ptr(), sent.data(), sent_at.data(),
                        type_of(input), output.mutable_data_ptr(), received.data(),
                        received_at.data(), type_of(output), ranks_, request);
      });
    });
  }

  void do_gather(at::Tensor input, at::Tensor output, int root) override {
    queue_
        .add([&] {
          const bool here = rank() == root;
          if (here) put_block(output, input, rank());
          complete("gather", {input, output}, [&](MPI_Request* request) {
            const void* from = here ? MPI_IN_PLACE : input.const_data_ptr();
            void* to = here ? output.mutable_data_ptr() : nullptr;
            const int count = count_of(input);
            return call_mpi(MPI_Igather, from, count, type_of(input), to, count, type_of(input),
                            root, ranks_, request);
          });
        })
        ->wait();
  }

  void do_barrier() override {
    queue_
        .add([this] {
          complete("barrier", {},
                   [&](MPI_Request* request) { return call_mpi(MPI_Ibarrier, ranks_, request); });
        })
        ->wait();
  }

  // Messages need no queue: MPI distinguishes them by their tags, and any thread may wait
  // for its own.
  class Message : public Work {
   public:
    Message(MpiGroup& group, const char* operation, at::Tensor tensor, MPI_Request request)
        : limits_(group.limits_),
          operation_(operation),
          tensor_(std::move(tensor)),
          request_(request) {}
    ~Message() override {
      if (!waited_) leave_to_mpi({tensor_});
    }
    void wait() override {
      const MpiEnd end = await_or_leave(*limits_, operation_, {tensor_}, request_);
      waited_ = true;
      int bytes = static_cast<int>(tensor_.nbytes());
      const bool received = std::string_view(operation_) == "recv";
      if (received && end.complaint.empty())
        call_mpi(MPI_Get_count, &end.status, MPI_BYTE, &bytes);
      if (!end.complaint.empty() || bytes != static_cast<int>(tensor_.nbytes()))
        throw Error(ErrorCode::invalid_argument, "comm",
                    fmt::format("{}: the tensor has {} bytes, but the message has {}", operation_,
                                tensor_.nbytes(),
                                end.complaint.empty() ? fmt::format("{}", bytes)
                                                      : "not: " + end.complaint),
                    "tensors of the same size and type");
    }

   private:
    std::shared_ptr<WaitLimits> limits_;
    const char* operation_;
    at::Tensor tensor_;
    MPI_Request request_;
    bool waited_ = false;
  };
  WorkPtr do_send(at::Tensor tensor, int to, int tag) override {
    limits_->throw_if_lost();
    MPI_Request request;
    check("send", call_mpi(MPI_Isend, tensor.const_data_ptr(), byte_count_of(tensor), MPI_BYTE, to,
                           tag, ranks_, &request));
    return std::make_unique<Message>(*this, "send", std::move(tensor), request);
  }
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    limits_->throw_if_lost();
    MPI_Request request;
    check("recv", call_mpi(MPI_Irecv, tensor.mutable_data_ptr(), byte_count_of(tensor), MPI_BYTE,
                           from, tag, ranks_, &request));
    return std::make_unique<Message>(*this, "recv", std::move(tensor), request);
  }

  template <typename Start>
  void complete(const char* operation, std::vector<at::Tensor> tensors, Start start) {
    limits_->throw_if_lost();
    MPI_Request request;
    check(operation, start(&request));
    check(operation, await_or_leave(*limits_, operation, std::move(tensors), request).complaint);
  }
  static MpiEnd await_or_leave(const WaitLimits& limits, const char* operation,
                               std::vector<at::Tensor> tensors, MPI_Request& request) {
    try {
      MpiEnd end =
          await(request, Deadline::after(limits.timeout()), [&] { limits.throw_if_lost(); });
      if (end.done || !end.complaint.empty()) return end;
    } catch (const Error&) {
      leave_to_mpi(std::move(tensors));
      throw;
    }
    leave_to_mpi(std::move(tensors));
    limits.time_out(operation, "the other ranks");
  }
  void check(const char* operation, const std::string& complaint) const {
    if (!complaint.empty()) limits_->explain(operation, complaint);
  }

  static MPI_Datatype type_of(const at::Tensor& tensor) {
    return mpi_type_of(tensor.scalar_type());
  }
  static int byte_count_of(const at::Tensor& tensor) {
    return in_range(static_cast<int64_t>(tensor.nbytes()), "bytes");
  }

  const std::shared_ptr<WaitLimits> limits_;
  const MPI_Comm ranks_;  // MPI_Finalize frees it; freeing one alone is an operation of all ranks.
  OperationQueue queue_;  // The last member: its thread uses the members above.
};

// Makes a communicator. Only its members take part, unlike in MPI_Comm_split.
MPI_Comm communicator_of(const std::vector<int>& members, int tag, const WaitLimits& limits) {
  MPI_Group world, group;
  MPI_Comm ranks;
  const std::lock_guard lock(mpi_mutex());
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &group);
  const std::string complaint =
      complaint_of(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &ranks));
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  if (!complaint.empty()) limits.explain("making a group", complaint);
  MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN);
  return ranks;
}

}  // namespace

bool mpi_is_compiled_in() { return true; }

std::shared_ptr<Group> make_mpi_group(std::shared_ptr<launch::Member> member, int rank,
                                      std::vector<int> members, Milliseconds timeout) {
  const auto& peers = member->peers();
  ensure_mpi(members[static_cast<size_t>(rank)], static_cast<int>(peers.size()));
  // MPI makes a communicator only when all members are there, without a deadline. This
  // wait has one.
  std::string names;
  for (const int each : members) names += fmt::format("{}.", each);
  // All members make their common groups in the same order.
  static std::map<std::string, int> made;
  const int number = made[names]++;
  const std::string key = fmt::format("mpi/{}/{}", names, number);
  const int64_t size = static_cast<int64_t>(members.size());
  if (member->add(key, 1) == size) member->set(key + "/all", "here");
  member->get(key + "/all", Deadline::after(timeout));
  auto limits = std::make_shared<WaitLimits>(std::move(member), timeout, members);
  const MPI_Comm ranks = communicator_of(members, number % 1024, *limits);
  return std::make_shared<MpiGroup>(std::move(limits), rank, static_cast<int>(members.size()),
                                    ranks);
}

}  // namespace trireme::comm
