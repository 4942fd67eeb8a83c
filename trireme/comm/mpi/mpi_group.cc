#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/blocks.h>
#include <trireme/comm/message_form.h>
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

// The header of a message with tag t has tag kHeaderTag + t. Every MPI has tags up to 32767.
constexpr int kHeaderTag = 8192;

class MpiGroup : public Group {
 public:
  MpiGroup(std::shared_ptr<WaitLimits> limits, int rank, int size, MPI_Comm ranks)
      : Group(rank, size), limits_(std::move(limits)), ranks_(ranks) {}

  std::string_view backend() const override { return "mpi"; }
  bool runs_in_background() const override { return true; }
  plan::Placement placement() const override { return plan::each_alone(size(), "mpi"); }
  void do_abort(const std::string& reason) override { limits_->give_up(reason); }

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

  // Each rank receives its block of every rank and adds them up. MPI's own reduce_scatter that
  // does not block takes longer than its all_reduce.
  WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) override {
    return queue_.add([this, input, output, op] {
      const at::Tensor arrived = at::empty({size(), output.numel()}, input.options());
      complete("reduce_scatter", {input, arrived}, [&](MPI_Request* request) {
        const int count = count_of(output);
        return call_mpi(MPI_Ialltoall, input.const_data_ptr(), count, type_of(input),
                        arrived.mutable_data_ptr(), count, type_of(arrived), ranks_, request);
      });
      reduce_blocks(arrived.unbind(0), output, op);
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
  // for its own. A header with its form goes ahead of each message.
  class Transfer : public Work {
   public:
    Transfer(MpiGroup& group, const char* operation, at::Tensor tensor, int other, int tag)
        : limits_(group.limits_),
          operation_(operation),
          tensor_(std::move(tensor)),
          header_(at::empty({2}, at::kLong)),
          other_(other),
          tag_(tag) {}
    ~Transfer() override {
      if (!over_) leave_to_mpi({tensor_, header_});
    }
    void wait() override {
      if (!advance(Deadline::after(limits_->timeout()))) {
        over_ = true;
        leave_to_mpi({tensor_, header_});
        limits_->time_out(operation_, "the other ranks");
      }
    }
    bool wait_for(Milliseconds patience) override { return advance(Deadline::after(patience)); }

    int64_t* header() { return header_.mutable_data_ptr<int64_t>(); }
    MPI_Request head_ = MPI_REQUEST_NULL, body_ = MPI_REQUEST_NULL;

   private:
    // Returns false if the deadline came first.
    bool advance(Deadline deadline) {
      const auto look = [&] { limits_->throw_if_lost(); };
      for (MPI_Request* const request : {&head_, &body_}) {
        if (*request == MPI_REQUEST_NULL) continue;
        const MpiEnd end = await(*request, deadline, look);
        if (!end.done && end.complaint.empty()) return false;
        // A message that is too long for the tensor is a complaint too; the header says more.
        if (request == &head_ || !receives())
          if (!end.complaint.empty()) limits_->explain(operation_, end.complaint);
        if (request == &body_) complaint_ = end.complaint;
        *request = MPI_REQUEST_NULL;
      }
      over_ = true;
      if (receives()) {
        const MessageForm sent{header()[0], static_cast<int32_t>(header()[1])};
        refuse_message({sent, form_of(tensor_), other_, tag_});
      }
      if (!complaint_.empty()) limits_->explain(operation_, complaint_);
      return true;
    }
    bool receives() const { return std::string_view(operation_) == "recv"; }

    std::shared_ptr<WaitLimits> limits_;
    const char* operation_;
    at::Tensor tensor_, header_;
    int other_, tag_;
    bool over_ = false;
    std::string complaint_;
  };
  WorkPtr do_send(at::Tensor tensor, int to, int tag) override {
    limits_->throw_if_lost();
    auto work = std::make_unique<Transfer>(*this, "send", tensor, to, tag);
    const MessageForm form = form_of(tensor);
    work->header()[0] = form.bytes;
    work->header()[1] = form.type;
    check("send", call_mpi(MPI_Isend, work->header(), 2, MPI_INT64_T, to, kHeaderTag + tag, ranks_,
                           &work->head_));
    check("send", call_mpi(MPI_Isend, tensor.const_data_ptr(), byte_count_of(tensor), MPI_BYTE, to,
                           tag, ranks_, &work->body_));
    return work;
  }
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    limits_->throw_if_lost();
    auto work = std::make_unique<Transfer>(*this, "recv", tensor, from, tag);
    check("recv", call_mpi(MPI_Irecv, work->header(), 2, MPI_INT64_T, from, kHeaderTag + tag,
                           ranks_, &work->head_));
    check("recv", call_mpi(MPI_Irecv, tensor.mutable_data_ptr(), byte_count_of(tensor), MPI_BYTE,
                           from, tag, ranks_, &work->body_));
    return work;
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
