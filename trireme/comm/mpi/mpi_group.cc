#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/blocks.h>
#include <trireme/comm/mpi/mpi_calls.h>
#include <trireme/comm/mpi/mpi_group.h>
#include <trireme/comm/mpi/mpi_messages.h>
#include <trireme/comm/mpi/mpi_reduction.h>
#include <trireme/comm/operation_queue.h>
#include <trireme/comm/splits.h>
#include <trireme/comm/wait_limits.h>
#include <trireme/membership/member.h>
#include <trireme/plan/placement.h>
#include <map>

namespace trireme::comm {
namespace {

std::vector<int> in_ints(const std::vector<int64_t>& counts) {
  std::vector<int> ints;
  for (const int64_t count : counts) ints.push_back(in_range(count, "elements"));
  return ints;
}
int count_of(const at::Tensor& tensor) { return in_range(tensor.numel(), "elements"); }

class MpiGroup : public Group {
 public:
  MpiGroup(std::shared_ptr<WaitLimits> limits, int rank, int size, MPI_Comm ranks)
      : Group(rank, size),
        limits_(std::move(limits)),
        ranks_(ranks),
        messages_(std::make_shared<MpiMessages>(limits_, ranks)) {}

  std::string_view backend() const override { return "mpi"; }
  bool runs_in_background() const override { return true; }
  plan::Placement placement() const override { return plan::each_alone(size(), "mpi"); }
  void do_abort(const std::string& reason) override { limits_->give_up(reason); }

 private:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    return queue_.add([this, tensor, op] {
      complete("all_reduce", {tensor}, [&](MPI_Request* request) {
        const MPI_Op reduction = mpi_op_of(tensor.scalar_type(), op);
        return call_mpi(mpi().Iallreduce, MPI_IN_PLACE, tensor.mutable_data_ptr(),
                        count_of(tensor), type_of(tensor), reduction, ranks_, request);
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
        return call_mpi(mpi().Ialltoall, input.const_data_ptr(), count, type_of(input),
                        arrived.mutable_data_ptr(), count, type_of(arrived), ranks_, request);
      });
      reduce_blocks(arrived.unbind(0), output, op);
    });
  }

  WorkPtr do_all_gather(at::Tensor input, at::Tensor output) override {
    return queue_.add([this, input, output] {
      put_block(output, input, rank());
      complete("all_gather", {output}, [&](MPI_Request* request) {
        return call_mpi(mpi().Iallgather, MPI_IN_PLACE, 0, mpi().datatype_null,
                        output.mutable_data_ptr(), count_of(input), type_of(output), ranks_,
                        request);
      });
    });
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    return queue_.add([this, tensor, root] {
      complete("broadcast", {tensor}, [&](MPI_Request* request) {
        return call_mpi(mpi().Ibcast, tensor.mutable_data_ptr(), count_of(tensor), type_of(tensor),
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
        return call_mpi(mpi().Ialltoallv, input.const_data_ptr(), sent.data(), sent_at.data(),
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
            return call_mpi(mpi().Igather, from, count, type_of(input), to, count, type_of(input),
                            root, ranks_, request);
          });
        })
        ->wait();
  }

  void do_barrier() override {
    queue_
        .add([this] {
          complete("barrier", {}, [&](MPI_Request* request) {
            return call_mpi(mpi().Ibarrier, ranks_, request);
          });
        })
        ->wait();
  }

  // Messages need no queue: MPI distinguishes them by their tags, and any thread may wait
  // for its own.
  WorkPtr do_send(at::Tensor tensor, int to, int tag) override {
    return messages_->send(std::move(tensor), to, tag);
  }
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    return messages_->receive(std::move(tensor), from, tag);
  }

  template <typename Start>
  void complete(const char* operation, std::vector<at::Tensor> tensors, Start start) {
    limits_->throw_if_lost();
    MPI_Request request;
    check(operation, start(&request));
    MpiEnd end;
    try {
      end = await(request, Deadline::after(limits_->timeout()), [&] {
        limits_->throw_if_lost();
        messages_->advance();
      });
    } catch (const Error&) {
      leave_to_mpi(std::move(tensors));
      throw;
    }
    check(operation, end.complaint);
    if (end.done) return;
    leave_to_mpi(std::move(tensors));
    limits_->time_out(operation, "the other ranks");
  }
  void check(const char* operation, const std::string& complaint) const {
    if (!complaint.empty()) limits_->explain(operation, complaint);
  }

  static MPI_Datatype type_of(const at::Tensor& tensor) {
    return mpi_type_of(tensor.scalar_type());
  }

  const std::shared_ptr<WaitLimits> limits_;
  const MPI_Comm ranks_;  // MPI_Finalize frees it; freeing one alone is an operation of all ranks.
  const std::shared_ptr<MpiMessages> messages_;
  OperationQueue queue_;  // The last member: its thread uses the members above.
};

// Makes a communicator. Only its members take part, unlike in MPI_Comm_split.
MPI_Comm communicator_of(const std::vector<int>& members, int tag, const WaitLimits& limits) {
  MPI_Group world, group;
  MPI_Comm ranks;
  const std::lock_guard lock(mpi_mutex());
  mpi().Comm_group(mpi().comm_world, &world);
  mpi().Group_incl(world, static_cast<int>(members.size()), members.data(), &group);
  const std::string complaint =
      complaint_of(mpi().Comm_create_group(mpi().comm_world, group, tag, &ranks));
  mpi().Group_free(&group);
  mpi().Group_free(&world);
  if (!complaint.empty()) limits.explain("making a group", complaint);
  mpi().Comm_set_errhandler(ranks, mpi().errors_return);
  return ranks;
}

}  // namespace

bool mpi_is_compiled_in() { return true; }

std::shared_ptr<Group> make_mpi_group(std::shared_ptr<membership::Member> member, int rank,
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
