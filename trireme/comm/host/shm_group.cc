#include <torch/torch.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/comm/blocks.h>
#include <trireme/comm/dtype.h>
#include <trireme/comm/host/mailboxes.h>
#include <trireme/comm/host/shm_group.h>
#include <trireme/comm/threads/reduce_kernel.h>
#include <algorithm>
#include <cstring>
#include <future>
#include <optional>
#include <utility>
#include <vector>

namespace trireme::comm {
namespace {

// Staging memory of one rank, used in turn: while the others read one half, the other is filled. Half a megabyte stays in the
// second-level cache between the rank that writes and the rank that reads it.
constexpr int64_t kHalfBytes = 512 << 10;
// Below this every rank reads everything of all others: one barrier instead of two.
constexpr int64_t kNaiveBytes = 16 << 10;

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// A tensor's memory cut for one collective.
struct Cut {
  std::byte* data;
  int64_t elements, element_bytes;
  std::byte* at(int64_t element) const { return data + element * element_bytes; }
};
Cut cut_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.numel(), static_cast<int64_t>(tensor.element_size())};
}

// Part `part` of `parts` of the elements [first, last), whole cache lines where that is possible.
std::pair<int64_t, int64_t> part_of(int64_t first, int64_t last, int part, int parts) {
  const int64_t each = ((last - first + parts - 1) / parts + 63) / 64 * 64;
  const int64_t from = std::min(last, first + part * each);
  return {from, std::min(last, from + each)};
}

class ShmGroup : public Group {
 public:
  ShmGroup(std::shared_ptr<HostTeam> team, Milliseconds timeout)
      : Group(team->rank(), team->size()), team_(std::move(team)), mail_(team_, timeout) {
    const size_t bytes = static_cast<size_t>(size()) * 2 * kHalfBytes;
    staging_ = team_->allocate(bytes, bytes, "staging of collectives");
  }

  std::string_view backend() const override { return "shm"; }
  void abort(const std::string& reason) override { team_->abort(reason); }
  std::shared_ptr<HostTeam> host_team() const override { return team_; }

  at::Tensor shared_tensor(at::IntArrayRef sizes, at::ScalarType type) override {
    const int64_t bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(c10::elementSize(type));
    const int64_t each = std::max<int64_t>(64, (bytes + 63) / 64 * 64);
    auto memory = team_->allocate(static_cast<size_t>(each * size()), static_cast<size_t>(each * size()), "a shared tensor");
    shared_.push_back({memory, each, shared_tensors_++});
    return at::from_blob(memory->data() + each * rank(), sizes, [memory](void*) {}, at::TensorOptions().dtype(type));
  }

 private:
  // Tensors of one shared_tensor(): one block a rank, `each` bytes apart.
  struct SharedBlocks {
    std::weak_ptr<net::SharedMemory> memory;
    int64_t each;
    int number;  // Of the call that made them.
  };
  // Where a tensor lies in all ranks' blocks.
  struct SharedPlace {
    std::shared_ptr<net::SharedMemory> memory;
    int64_t each, offset;
    int number;
    std::byte* of(int rank) const { return memory->data() + each * rank + offset; }
  };

  std::byte* half(int of, int parity) const { return staging_->data() + (2 * static_cast<int64_t>(of) + parity) * kHalfBytes; }
  void meet(const char* operation, const at::Tensor& tensor, std::string_view detail) {
    team_->meet({operation, tensor.numel(), fmt::format("{}, {}", c10::toString(tensor.scalar_type()), detail)});
  }

  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    if (size() == 1) return finished_work();
    const int64_t bytes = static_cast<int64_t>(tensor.nbytes());
    if (const auto place = shared_place(tensor)) {
      reduce_in_place(tensor, op, *place);
    } else if (bytes <= kNaiveBytes) {
      reduce_small(tensor, op);
    } else {
      meet("all_reduce", tensor, to_string(op));
      reduce_staged(tensor, op);
    }
    return finished_work();
  }

  std::optional<SharedPlace> shared_place(const at::Tensor& tensor) {
    std::erase_if(shared_, [](const SharedBlocks& blocks) { return blocks.memory.expired(); });
    const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
    for (const SharedBlocks& blocks : shared_) {
      const auto memory = blocks.memory.lock();
      const std::byte* const mine = memory->data() + blocks.each * rank();
      if (data >= mine && data + tensor.nbytes() <= mine + blocks.each) return SharedPlace{memory, blocks.each, data - mine, blocks.number};
    }
    return std::nullopt;
  }

  // Each rank reduces its part of all blocks and writes the result into all of them.
  void reduce_in_place(const at::Tensor& tensor, ReduceOp op, const SharedPlace& place) {
    meet("all_reduce", tensor, fmt::format("{} in shared tensor {} at {}", to_string(op), place.number, place.offset));
    const Cut cut = cut_of(tensor);
    const auto [first, last] = part_of(0, cut.elements, rank(), size());
    const int64_t piece = kHalfBytes / 8 / cut.element_bytes;
    std::vector<const void*> sources;
    for (int of = 0; of < size(); ++of) sources.push_back(place.of(of));
    for (int64_t from = first; from < last; from += piece) {
      const int64_t to = std::min(last, from + piece);
      fold(tensor, op, cut.data, sources, from, to);
      for (int of = 0; of < size(); ++of)
        if (of != rank()) copy_bytes(place.of(of) + from * cut.element_bytes, cut.at(from), (to - from) * cut.element_bytes);
    }
    team_->barrier("all_reduce");
  }

  void reduce_small(const at::Tensor& tensor, ReduceOp op) {
    const int parity = next_parity();
    copy_bytes(half(rank(), parity), tensor.const_data_ptr(), static_cast<int64_t>(tensor.nbytes()));
    meet("all_reduce", tensor, to_string(op));
    std::vector<const void*> sources;
    for (int of = 0; of < size(); ++of) sources.push_back(half(of, parity));
    fold(tensor, op, tensor.mutable_data_ptr(), sources, 0, tensor.numel());
  }

  // Rounds of pieces. In a round each rank lays its piece out, reduces its part of the piece over all ranks, and takes the other parts.
  // Laying out for the next round happens before the barrier, so a round has one barrier.
  void reduce_staged(const at::Tensor& tensor, ReduceOp op) {
    const Cut cut = cut_of(tensor);
    const int64_t lines = 64 * size();
    const int64_t piece = std::min(kHalfBytes / cut.element_bytes, (cut.elements + lines - 1) / lines * lines);
    const int64_t rounds = (cut.elements + piece - 1) / piece;
    const auto range = [&](int64_t round) {
      return std::pair(std::min(cut.elements, round * piece), std::min(cut.elements, (round + 1) * piece));
    };
    const int start = next_parity();
    const auto parity = [&](int64_t round) { return static_cast<int>((start + round) % 2); };
    // A rank's part of a piece lies at the same place in every round, also in the last, shorter one: what it has reduced there may still be
    // read by slower ranks while the round after the next is laid out around it.
    const auto part = [&](int64_t round, int of) {
      const auto [first, last] = range(round);
      const auto [from, to] = part_of(first, first + piece, of, size());
      return std::pair(std::min(from, last), std::min(to, last));
    };
    const auto lay_out = [&](int64_t round) {
      const auto [first, last] = range(round);
      const auto [from, to] = part(round, rank());
      copy_bytes(half(rank(), parity(round)), cut.at(first), (from - first) * cut.element_bytes);
      copy_bytes(half(rank(), parity(round)) + (to - first) * cut.element_bytes, cut.at(to), (last - to) * cut.element_bytes);
    };
    lay_out(0);
    team_->barrier("all_reduce");
    for (int64_t round = 0; round < rounds; ++round) {
      const auto [first, last] = range(round);
      const auto [from, to] = part(round, rank());
      std::vector<const void*> sources;  // As if each began at the tensor's element 0.
      for (int of = 0; of < size(); ++of) sources.push_back(of == rank() ? cut.data : half(of, parity(round)) - first * cut.element_bytes);
      fold(tensor, op, cut.data, sources, from, to);
      copy_bytes(half(rank(), parity(round)) + (from - first) * cut.element_bytes, cut.at(from), (to - from) * cut.element_bytes);
      if (round + 1 < rounds) lay_out(round + 1);
      team_->barrier("all_reduce");
      for (int of = 0; of < size(); ++of) {
        if (of == rank()) continue;
        const auto [theirs, end] = part(round, of);
        copy_bytes(cut.at(theirs), half(of, parity(round)) + (theirs - first) * cut.element_bytes, (end - theirs) * cut.element_bytes);
      }
    }
    parity_ = parity(rounds);
  }

  void fold(const at::Tensor& like, ReduceOp op, void* target, const std::vector<const void*>& sources, int64_t first, int64_t last) const {
    fold_range(to_plan(like.scalar_type()), fold_of(op), target, sources, first, last);
    if (op == ReduceOp::mean && last > first)
      at::from_blob(static_cast<std::byte*>(target) + first * static_cast<int64_t>(like.element_size()), {last - first}, like.options())
          .div_(size());
  }

  // Every rank lays its pieces out; `take` uses what all have laid out of elements [first, last) of a block.
  template <typename LayOut, typename Take>
  void in_rounds(const char* operation, int64_t elements, int64_t piece, LayOut lay_out, Take take) {
    const int64_t rounds = (elements + piece - 1) / piece;
    for (int64_t round = 0; round < rounds; ++round) {
      const int64_t first = round * piece, last = std::min(elements, first + piece);
      const int parity = next_parity();
      lay_out(half(rank(), parity), first, last);
      team_->barrier(operation);
      take(parity, first, last);
    }
  }

  WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) override {
    meet("reduce_scatter", input, to_string(op));
    const Cut in = cut_of(input), out = cut_of(output);
    const int64_t piece = std::max<int64_t>(1, kHalfBytes / size() / in.element_bytes);
    // `output` may be part of `input`: laid out already when it is written, except for the pieces still to come.
    at::Tensor reduced = at::empty_like(output);
    in_rounds(
        "reduce_scatter", out.elements, piece,
        [&](std::byte* stage, int64_t first, int64_t last) {
          for (int to = 0; to < size(); ++to)
            copy_bytes(stage + to * piece * in.element_bytes, in.at(to * out.elements + first), (last - first) * in.element_bytes);
        },
        [&](int parity, int64_t first, int64_t last) {
          std::vector<const void*> sources;
          for (int of = 0; of < size(); ++of) sources.push_back(half(of, parity) + (rank() * piece - first) * in.element_bytes);
          fold(output, op, reduced.mutable_data_ptr(), sources, first, last);
        });
    output.copy_(reduced);
    return finished_work();
  }

  WorkPtr do_all_gather(at::Tensor input, at::Tensor output) override {
    meet("all_gather", input, "all ranks");
    collect("all_gather", input, output, true);
    return finished_work();
  }
  void do_gather(at::Tensor input, at::Tensor output, int root) override {
    meet("gather", input, fmt::format("root {}", root));
    collect("gather", input, output, rank() == root);
  }
  void collect(const char* operation, const at::Tensor& input, const at::Tensor& output, bool takes) {
    const Cut in = cut_of(input);
    const Cut out = takes ? cut_of(output) : Cut{};
    in_rounds(
        operation, in.elements, kHalfBytes / in.element_bytes,
        [&](std::byte* stage, int64_t first, int64_t last) { copy_bytes(stage, in.at(first), (last - first) * in.element_bytes); },
        [&](int parity, int64_t first, int64_t last) {
          for (int of = 0; takes && of < size(); ++of)
            copy_bytes(out.at(of * in.elements + first), half(of, parity), (last - first) * in.element_bytes);
        });
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    meet("broadcast", tensor, fmt::format("root {}", root));
    const Cut cut = cut_of(tensor);
    in_rounds(
        "broadcast", cut.elements, kHalfBytes / cut.element_bytes,
        [&](std::byte* stage, int64_t first, int64_t last) {
          if (rank() == root) copy_bytes(stage, cut.at(first), (last - first) * cut.element_bytes);
        },
        [&](int parity, int64_t first, int64_t last) {
          if (rank() != root) copy_bytes(cut.at(first), half(root, parity), (last - first) * cut.element_bytes);
        });
    return finished_work();
  }

  class Sending : public Work {
   public:
    Sending(Mailboxes& mail, at::Tensor tensor, int to, int tag)
        : mail_(mail), tensor_(std::move(tensor)), to_(to), number_(mail.post(to, tag, tensor_.const_data_ptr(), tensor_.nbytes())) {}
    void wait() override { mail_.wait_sent(to_, number_); }

   private:
    Mailboxes& mail_;
    at::Tensor tensor_;
    int to_;
    uint64_t number_;
  };
  class Receiving : public Work {
   public:
    Receiving(Mailboxes& mail, at::Tensor tensor, int from, int tag) : mail_(mail), tensor_(std::move(tensor)), from_(from), tag_(tag) {}
    void wait() override { take_message(tensor_, mail_.take(from_, tag_), from_); }

   private:
    Mailboxes& mail_;
    at::Tensor tensor_;
    int from_, tag_;
  };
  WorkPtr do_send(at::Tensor tensor, int to, int tag) override { return std::make_unique<Sending>(mail_, std::move(tensor), to, tag); }
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    return std::make_unique<Receiving>(mail_, std::move(tensor), from, tag);
  }
  void do_barrier() override { team_->meet({"barrier", 0, "no tensor"}); }

  int next_parity() { return std::exchange(parity_, 1 - parity_); }

  std::shared_ptr<HostTeam> team_;
  Mailboxes mail_;
  std::shared_ptr<net::SharedMemory> staging_;
  std::vector<SharedBlocks> shared_;
  int shared_tensors_ = 0;
  int parity_ = 0;  // Half of the staging memory to fill next; alike on all ranks.
};

}  // namespace

std::vector<std::shared_ptr<Group>> make_shm_groups(const std::vector<std::shared_ptr<HostTeam>>& teams, Milliseconds timeout) {
  // Making one waits for the others, so each of this process's ranks needs a thread.
  std::vector<std::future<std::shared_ptr<Group>>> made;
  for (const auto& team : teams)
    made.push_back(
        std::async(std::launch::async, [&] { return std::static_pointer_cast<Group>(std::make_shared<ShmGroup>(team, timeout)); }));
  std::vector<std::shared_ptr<Group>> groups;
  for (auto& group : made) groups.push_back(group.get());
  return groups;
}

}  // namespace trireme::comm
