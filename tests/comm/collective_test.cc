// The same tests for every backend.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <tuple>
#include "forecast.h"
#include "ranks.h"
#include "whole_numbers.h"

namespace trireme::collective_test {
namespace {

using tests::Groups;
using tests::part_of;

struct Carrier {
  std::string name;
  int workers = 1;   // Processes; here threads with Worlds of their own.
  int replicas = 1;  // Threads per worker.
  plan::Algorithm all_reduce = plan::Algorithm::direct;
  std::string backend = "auto", expected = "threads";
  std::vector<std::string> hosts;  // [worker], if the workers play several hosts.
  int size() const { return workers * replicas; }
};

class Collective : public ::testing::TestWithParam<Carrier> {
 protected:
  void SetUp() override {
    const Carrier& carrier = GetParam();
    if (carrier.workers == 1) {
      groups_ = tests::thread_groups(carrier.replicas, carrier.all_reduce);
    } else {
      WorldOptions options = tests::world_options();
      options.backend = carrier.backend;
      workers_.emplace(carrier.workers, options, carrier.hosts);
      groups_ = workers_->make_groups(carrier.replicas);
    }
  }
  void TearDown() override {
    if (workers_) workers_->leave();
  }
  int size() const { return GetParam().size(); }
  template <typename Body>
  void on_ranks(Body body) {
    tests::on_ranks(groups_, body);
  }

  std::optional<tests::Workers> workers_;
  Groups groups_;
};

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                     at::kInt,   at::kLong,   at::kByte};
constexpr int64_t kCounts[] = {0, 1, 2, 3, 5, 7, 64, 1000, 10007};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min};

bool allowed(at::ScalarType type, ReduceOp op) {
  return op != ReduceOp::mean || at::isFloatingType(type);
}

at::Tensor computed_reduction(int size, int64_t count, at::ScalarType type, ReduceOp op) {
  at::Tensor result = part_of(0, count, type);
  for (int rank = 1; rank < size; ++rank) {
    const at::Tensor part = part_of(rank, count, type);
    if (op == ReduceOp::max)
      result = at::maximum(result, part);
    else if (op == ReduceOp::min)
      result = at::minimum(result, part);
    else
      result = result + part;
  }
  return op == ReduceOp::mean ? result.div_(size) : result;
}

// The ranks share the result, because computing it takes longer than the collective under test.
at::Tensor reduction_of(int size, int64_t count, at::ScalarType type, ReduceOp op) {
  static std::mutex mutex;
  static std::map<std::tuple<int, int64_t, at::ScalarType, ReduceOp>, at::Tensor> known;
  const std::lock_guard lock(mutex);
  at::Tensor& result = known[{size, count, type, op}];
  if (!result.defined()) result = computed_reduction(size, count, type, op);
  return result;
}

std::string label(at::ScalarType type, int64_t count, ReduceOp op) {
  return fmt::format("{} x {} {}", count, c10::toString(type), to_string(op));
}

TEST_P(Collective, HasRanksInOrder) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    EXPECT_EQ(groups_[i]->rank(), static_cast<int>(i));
    EXPECT_EQ(groups_[i]->size(), size());
  }
  EXPECT_EQ(groups_[0]->backend(), GetParam().expected);
}

TEST_P(Collective, AllReduceGivesTheReductionOnEveryRank) {
  on_ranks([&](Group& group) {
    for (const at::ScalarType type : kTypes)
      for (const int64_t count : kCounts)
        for (const ReduceOp op : kOps) {
          if (!allowed(type, op)) continue;
          const at::Tensor tensor = part_of(group.rank(), count, type);
          group.all_reduce(tensor, op);
          ASSERT_TRUE(tensor.equal(reduction_of(size(), count, type, op)))
              << label(type, count, op);
        }
  });
}

// Backends that cut tensors into pieces have several pieces here, and a short last one.
TEST_P(Collective, LargeTensorsOfManyPiecesAreReducedCorrectlyEachTime) {
  on_ranks([&](Group& group) {
    for (const int64_t count : {5000, 131072, 262145, 700001}) {
      const at::Tensor expected = reduction_of(size(), count, at::kFloat, ReduceOp::sum);
      const at::Tensor mine = part_of(group.rank(), count, at::kFloat);
      for (int repeat = 0; repeat < 4; ++repeat) {
        const at::Tensor tensor = mine.clone();
        group.all_reduce(tensor);
        ASSERT_TRUE(tensor.equal(expected)) << count << " elements, repeat " << repeat;
      }
      const at::Tensor sent = part_of(1 % size(), count, at::kFloat);
      const at::Tensor received = group.rank() == 1 % size() ? sent.clone() : at::zeros_like(sent);
      group.broadcast(received, 1 % size());
      ASSERT_TRUE(received.equal(sent)) << count;
    }
  });
}

TEST_P(Collective, SharedTensorsAreReducedInPlace) {
  on_ranks([&](Group& group) {
    const at::Tensor tensor = group.shared_tensor({3, 100003}, at::kFloat);
    for (int repeat = 0; repeat < 3; ++repeat) {
      tensor.copy_(part_of(group.rank(), tensor.numel(), at::kFloat).view(tensor.sizes()));
      group.all_reduce(tensor);
      ASSERT_TRUE(tensor.view({-1}).equal(
          reduction_of(size(), tensor.numel(), at::kFloat, ReduceOp::sum)));
    }
    const at::Tensor row = tensor[1];
    row.fill_(group.rank());
    group.all_reduce(row, ReduceOp::max);
    ASSERT_TRUE(row.equal(at::full_like(row, size() - 1)));
  });
}

TEST_P(Collective, ReduceScatterGivesEachRankItsBlock) {
  on_ranks([&](Group& group) {
    for (const at::ScalarType type : kTypes)
      for (const int64_t count : {0, 1, 5, 1000})
        for (const ReduceOp op : kOps) {
          if (!allowed(type, op)) continue;
          const at::Tensor input = part_of(group.rank(), count * size(), type);
          const at::Tensor output = at::empty({count}, type);
          group.reduce_scatter(input, output, op);
          ASSERT_TRUE(output.equal(reduction_of(size(), count * size(), type, op)
                                       .narrow(0, group.rank() * count, count)))
              << label(type, count, op);
          ASSERT_TRUE(input.equal(part_of(group.rank(), count * size(), type)))
              << "the input is only read: " << label(type, count, op);
        }
  });
}

TEST_P(Collective, ReduceScatterMayWriteIntoItsInput) {
  on_ranks([&](Group& group) {
    const at::Tensor input = part_of(group.rank(), 7 * size(), at::kFloat);
    const at::Tensor block = input.narrow(0, group.rank() * 7, 7);
    group.reduce_scatter(input, block);
    EXPECT_TRUE(block.equal(reduction_of(size(), 7 * size(), at::kFloat, ReduceOp::sum)
                                .narrow(0, group.rank() * 7, 7)));
  });
}

at::Tensor parts_in_order(int size, int64_t count, at::ScalarType type) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < size; ++rank) parts.push_back(part_of(rank, count, type));
  return at::cat(parts);
}

TEST_P(Collective, AllGatherPutsBlocksInRankOrder) {
  on_ranks([&](Group& group) {
    for (const at::ScalarType type : kTypes)
      for (const int64_t count : kCounts) {
        const at::Tensor output = at::empty({count * size()}, type);
        group.all_gather(part_of(group.rank(), count, type), output);
        ASSERT_TRUE(output.equal(parts_in_order(size(), count, type)))
            << label(type, count, ReduceOp::sum);
      }
  });
}

TEST_P(Collective, AllGatherTakesAViewOfItsOutput) {
  on_ranks([&](Group& group) {
    const at::Tensor output = at::zeros({size() * 5});
    const at::Tensor mine = output.narrow(0, group.rank() * 5, 5);
    mine.copy_(part_of(group.rank(), 5, at::kFloat));
    group.all_gather(mine, output);
    EXPECT_TRUE(output.equal(parts_in_order(size(), 5, at::kFloat)));
  });
}

TEST_P(Collective, BroadcastGivesTheTensorOfEveryRoot) {
  on_ranks([&](Group& group) {
    for (int root = 0; root < size(); ++root)
      for (const at::ScalarType type : kTypes)
        for (const int64_t count : {0, 1, 3, 1000}) {
          const at::Tensor tensor = part_of(group.rank(), count, type);
          group.broadcast(tensor, root);
          ASSERT_TRUE(tensor.equal(part_of(root, count, type)))
              << label(type, count, ReduceOp::sum) << " from " << root;
        }
  });
}

at::Tensor block_between(int from, int to, int64_t count, at::ScalarType type) {
  return part_of(from * 11 + to, count, type);
}

TEST_P(Collective, AllToAllGivesEachRankTheBlocksForIt) {
  on_ranks([&](Group& group) {
    for (const at::ScalarType type : kTypes)
      for (const int64_t count : {0, 1, 5, 1000, 70001}) {
        std::vector<at::Tensor> blocks, expected;
        for (int other = 0; other < size(); ++other) {
          blocks.push_back(block_between(group.rank(), other, count, type));
          expected.push_back(block_between(other, group.rank(), count, type));
        }
        const at::Tensor input = at::cat(blocks), output = at::empty_like(input);
        group.all_to_all(input, output);
        ASSERT_TRUE(output.equal(at::cat(expected))) << label(type, count, ReduceOp::sum);
        ASSERT_TRUE(input.equal(at::cat(blocks))) << "the input is only read";
      }
  });
}

TEST_P(Collective, AllToAllTakesBlocksOfAnyLength) {
  on_ranks([&](Group& group) {
    for (const at::ScalarType type : {at::kFloat, at::kByte})
      for (const int64_t count : {0, 1, 7, 1000, 70001}) {
        const auto [sent, received] = tests::lengths_of(group.rank(), size(), count);
        std::vector<at::Tensor> blocks, expected;
        for (int other = 0; other < size(); ++other) {
          const auto at = static_cast<size_t>(other);
          blocks.push_back(block_between(group.rank(), other, sent[at], type));
          expected.push_back(block_between(other, group.rank(), received[at], type));
        }
        const at::Tensor output = at::empty({tests::sum_of(received)}, type);
        group.all_to_all_async(at::cat(blocks), output, sent, received)->wait();
        ASSERT_TRUE(output.equal(at::cat(expected))) << label(type, count, ReduceOp::sum);
      }
  });
}

TEST_P(Collective, AllToAllNamesTheRanksWhoseLengthsDiffer) {
  if (size() == 1) return;
  const auto endings = tests::endings_of(groups_, [&](Group& group) {
    const auto ranks = static_cast<size_t>(size());
    std::vector<int64_t> sent(ranks, 2), received(ranks, 2);
    if (group.rank() == size() - 1) received[0] = 5;
    group.all_to_all(at::ones({tests::sum_of(sent)}), at::empty({tests::sum_of(received)}), sent,
                     received);
  });
  for (const tests::Ending& ending : endings) {
    EXPECT_EQ(to_string(ending.code), to_string(ErrorCode::invalid_argument));
    EXPECT_NE(ending.what.find(
                  fmt::format("rank 0 sends 2 elements to rank {}, which expects 5", size() - 1)),
              std::string::npos)
        << ending.what;
  }
}

TEST_P(Collective, GatherFillsOnlyTheRoot) {
  on_ranks([&](Group& group) {
    for (int root = 0; root < size(); ++root)
      for (const at::ScalarType type : kTypes) {
        const bool is_root = group.rank() == root;
        const at::Tensor output = is_root ? at::empty({size(), 3}, type) : at::Tensor();
        group.gather(part_of(group.rank(), 3, type), output, root);
        if (is_root) {
          ASSERT_TRUE(output.view({-1}).equal(parts_in_order(size(), 3, type)))
              << c10::toString(type);
        }
      }
  });
}

TEST_P(Collective, ShapesAreKeptAndScalarsAreSupported) {
  on_ranks([&](Group& group) {
    const at::Tensor cube = at::ones({2, 3, 4});
    group.all_reduce(cube);
    EXPECT_TRUE(cube.equal(at::full({2, 3, 4}, static_cast<double>(size()))));
    const at::Tensor scalar = at::scalar_tensor(group.rank(), at::kLong);
    group.broadcast(scalar, size() - 1);
    EXPECT_EQ(scalar.item<int64_t>(), size() - 1);
  });
}

TEST_P(Collective, FloatSumsHaveTheSameBitsOnAllRanksAndInEveryRun) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int64_t count : {1, 1000, 10007}) {
      std::vector<at::Tensor> parts, sums(groups_.size());
      for (size_t rank = 0; rank < groups_.size(); ++rank)
        parts.push_back(
            at::randn({count}, at::detail::createCPUGenerator(rank), at::kFloat).to(type));
      for (int repetition = 0; repetition < 3; ++repetition) {
        on_ranks([&](Group& group) {
          const auto rank = static_cast<size_t>(group.rank());
          const at::Tensor sum = parts[rank].clone();
          group.all_reduce(sum);
          if (repetition == 0) sums[rank] = sum;
          EXPECT_TRUE(sum.equal(sums[rank])) << "another sum on repetition " << repetition;
        });
      }
      for (const at::Tensor& sum : sums) EXPECT_TRUE(sum.equal(sums[0]));
    }
  }
}

TEST_P(Collective, SeveralOperationsMayBeInProgress) {
  on_ranks([&](Group& group) {
    std::vector<at::Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 5; ++i) {
      tensors.push_back(at::full({100 + i}, i + 1.0));
      works.push_back(group.all_reduce_async(tensors.back()));
    }
    for (auto& work : works) work->wait();
    for (int i = 0; i < 5; ++i)
      EXPECT_TRUE(tensors[static_cast<size_t>(i)].equal(at::full({100 + i}, (i + 1.0) * size())))
          << i;
  });
}

TEST_P(Collective, MessagesGoRoundTheRing) {
  if (size() == 1) return;
  on_ranks([&](Group& group) {
    const int next = (group.rank() + 1) % size(), previous = (group.rank() + size() - 1) % size();
    for (const at::ScalarType type : kTypes) {
      const at::Tensor received = at::empty({11}, type);
      const WorkPtr receiving = group.recv_async(received, previous, 3);
      group.send_async(part_of(group.rank(), 11, type), next, 3)->wait();
      receiving->wait();
      ASSERT_TRUE(received.equal(part_of(previous, 11, type))) << c10::toString(type);
    }
  });
}

TEST_P(Collective, TagsTellMessagesApartAndEqualTagsKeepOrder) {
  if (size() == 1) return;
  on_ranks([&](Group& group) {
    const int last = size() - 1;
    if (group.rank() == 0) {
      std::vector<at::Tensor> sent;
      std::vector<WorkPtr> sending;
      for (const auto& [value, tag] : {std::pair{1, 5}, {2, 6}, {3, 5}}) {
        sent.push_back(at::full({4}, value, at::kInt));
        sending.push_back(group.send_async(sent.back(), last, tag));
      }
      for (auto& work : sending) work->wait();
    } else if (group.rank() == last) {
      for (const auto& [value, tag] : {std::pair{2, 6}, {1, 5}, {3, 5}}) {
        const at::Tensor received = at::zeros({4}, at::kInt);
        group.recv(received, 0, tag);
        EXPECT_TRUE(received.equal(at::full({4}, value, at::kInt))) << "tag " << tag;
      }
    }
    group.barrier();
  });
}

TEST_P(Collective, AMessageOfAnotherSizeOrTypeIsNamedByItsReceiver) {
  if (size() == 1) return;
  on_ranks([&](Group& group) {
    const int last = size() - 1;
    const std::vector<at::Tensor> sent{at::ones({11}), at::ones({2}), at::ones({10}, at::kInt),
                                       at::full({10}, 4.0)};
    if (group.rank() == 0) {
      std::vector<WorkPtr> works;
      for (const at::Tensor& tensor : sent) works.push_back(group.send_async(tensor, last, 7));
      for (const WorkPtr& work : works) work->wait();
    } else if (group.rank() == last) {
      for (const char* what :
           {"11 elements of Float", "2 elements of Float", "10 elements of Int"}) {
        std::string error;
        try {
          group.recv(at::zeros({10}), 0, 7);
        } catch (const Error& refusal) {
          EXPECT_EQ(to_string(refusal.code()), to_string(ErrorCode::invalid_argument));
          error = refusal.what();
        }
        EXPECT_NE(error.find(std::string("rank 0 sent ") + what + " with tag 7"),
                  std::string::npos)
            << error;
        EXPECT_NE(error.find("the tensor has 10 elements of Float"), std::string::npos) << error;
      }
      const at::Tensor received = at::zeros({10});
      group.recv(received, 0, 7);
      EXPECT_TRUE(received.equal(sent.back())) << "later messages arrive";
    }
    group.barrier();
  });
}

TEST_P(Collective, AReceiveMayBeAwaitedAgainAfterADeadlineOfItsOwn) {
  if (size() == 1) return;
  on_ranks([&](Group& group) {
    const int last = size() - 1;
    for (const int64_t count : {0, 3, 300000}) {
      const at::Tensor sent = part_of(3, count, at::kFloat), received = at::empty_like(sent);
      WorkPtr receiving;
      if (group.rank() == last) {
        receiving = group.recv_async(received, 0, 1);
        EXPECT_FALSE(receiving->is_done());
        EXPECT_FALSE(receiving->wait_for(Milliseconds(20)));
      }
      group.barrier();
      if (group.rank() == 0) {
        const WorkPtr sending = group.send_async(sent, last, 1);
        while (!sending->wait_for(Milliseconds(1000))) {
        }
        EXPECT_TRUE(sending->is_done());
      }
      if (receiving) {
        while (!receiving->wait_for(Milliseconds(1000))) {
        }
        receiving->wait();
        EXPECT_TRUE(received.equal(sent));
      }
    }
  });
}

TEST_P(Collective, AnOperationIsDoneWithoutAWait) {
  on_ranks([&](Group& group) {
    const at::Tensor all = at::ones({6 * size()}), sum = at::zeros({6}), sums = at::ones({1000});
    const WorkPtr first = group.all_reduce_async(sums),
                  second = group.reduce_scatter_async(all, sum);
    for (const WorkPtr* const work : {&first, &second})
      while (!(*work)->is_done()) std::this_thread::yield();
    EXPECT_TRUE(sums.equal(at::full({1000}, static_cast<double>(size()))));
    EXPECT_TRUE(sum.equal(at::full({6}, static_cast<double>(size()))));
  });
}

TEST_P(Collective, ACollectiveMayBeAwaitedAgainIfItRunsInTheBackground) {
  if (!groups_[0]->runs_in_background()) return;
  std::atomic<bool> gave_up{false};
  on_ranks([&](Group& group) {
    const at::Tensor tensor = at::ones({5});
    if (group.rank() == 1)
      while (!gave_up) std::this_thread::yield();
    const WorkPtr work = group.all_reduce_async(tensor);
    if (group.rank() == 0) {
      EXPECT_FALSE(work->wait_for(Milliseconds(30)));
      EXPECT_FALSE(work->is_done());
      gave_up = true;
    }
    work->wait();
    EXPECT_TRUE(tensor.equal(at::full({5}, static_cast<double>(size()))));
  });
}

TEST_P(Collective, NoRankPassesABarrierBeforeAllHaveArrived) {
  std::atomic<int> arrived{0};
  on_ranks([&](Group& group) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      group.barrier();
      EXPECT_GE(arrived.load(), round * size());
      group.barrier();
    }
  });
}

TEST_P(Collective, TensorsThatRequireGradAreReducedInPlace) {
  on_ranks([&](Group& group) {
    const at::Tensor parameter = at::ones({3}).requires_grad_();
    group.all_reduce(parameter, ReduceOp::mean);
    group.broadcast(parameter, 0);
    EXPECT_TRUE(parameter.detach().equal(at::ones({3})));
    const at::Tensor all = at::zeros({3 * size()}).requires_grad_();
    group.all_gather(parameter, all);
    EXPECT_TRUE(all.detach().equal(at::ones({3 * size()})));
  });
}

TEST_P(Collective, HasOnePlacementOnAllRanks) {
  const plan::Placement placement = groups_[0]->placement();
  EXPECT_NO_THROW(plan::check(placement)) << placement.describe();
  EXPECT_EQ(placement.ranks(), size());
  for (const auto& group : groups_) {
    EXPECT_EQ(group->placement().to_json().dump(), placement.to_json().dump());
    EXPECT_EQ(group->placement().table, placement.table);
  }
}

TEST_P(Collective, SendsWhatItsPlacementForesees) {
  const std::vector<tests::Call> calls = tests::some_calls(size());
  tests::Forecast forecast(groups_[0]->placement());
  for (const tests::Call& call : calls) forecast.add(call);
  on_ranks([&](Group& group) {
    for (const tests::Call& call : calls) tests::perform(group, call);
  });
  forecast.expect_of(groups_);
}

TEST_P(Collective, CountsNoBarrier) {
  on_ranks([&](Group& group) {
    for (int i = 0; i < 3; ++i) group.barrier();
  });
  tests::Forecast(groups_[0]->placement()).expect_of(groups_);
}

std::string name_of(const ::testing::TestParamInfo<Carrier>& info) {
  const Carrier& carrier = info.param;
  return fmt::format("{}_{}", carrier.name,
                     carrier.workers > 1 && carrier.replicas > 1
                         ? fmt::format("{}x{}", carrier.workers, carrier.replicas)
                         : std::to_string(carrier.size()));
}

std::vector<Carrier> carriers() {
  std::vector<Carrier> all;
  for (const int size : {1, 2, 3, 4, 5, 8})
    for (const auto algorithm : {plan::Algorithm::direct, plan::Algorithm::halving_doubling})
      all.push_back({"threads_" + std::string(plan::to_string(algorithm)), 1, size, algorithm});
  const auto direct = plan::Algorithm::direct;
  for (const int workers : {2, 3, 4}) all.push_back({"gloo", workers, 1, direct, "gloo", "gloo"});
  all.push_back({"gloo_and_threads", 2, 2, direct, "gloo", "hybrid"});
  all.push_back({"gloo_and_threads", 3, 2, direct, "gloo", "hybrid"});
  for (const int workers : {2, 3, 4, 8}) all.push_back({"tcp", workers, 1, direct, "tcp", "tcp"});
  all.push_back({"tcp_and_threads", 2, 2, direct, "tcp", "hybrid"});
  for (const int workers : {2, 3, 4, 8}) all.push_back({"shm", workers, 1, direct, "auto", "shm"});
  for (const int workers : {2, 3}) all.push_back({"shm", workers, 2, direct, "auto", "shm"});
  all.push_back({"hosts_aab", 3, 1, direct, "auto", "hybrid", {"a", "a", "b"}});
  all.push_back({"hosts_abab", 4, 1, direct, "auto", "hybrid", {"a", "b", "a", "b"}});
  all.push_back({"hosts_abb", 3, 2, direct, "auto", "hybrid", {"a", "b", "b"}});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Carriers, Collective, ::testing::ValuesIn(carriers()), name_of);

}  // namespace
}  // namespace trireme::collective_test
