// Strategies of one's own for tests of the Trainer, and a record of what their engines did.
#pragma once
#include "jobs.h"

#include "../parallel/all_reduced.h"
// This header must come after those of torch.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace trireme::tests {

inline constexpr const char* kOwn = "own_strategy_test";
inline constexpr const char* kSums = "own_strategy_test_sums";
inline constexpr const char* kHalf = "own_strategy_test_half";
inline constexpr const char* kApart = "own_strategy_test_apart";
inline constexpr const char* kAble = "own_strategy_test_able";

inline std::vector<NamedTensor> clones_of(const StateView& view) {
  std::vector<NamedTensor> clones;
  for (const StateEntry& entry : view)
    clones.push_back({entry.slice.tensor, entry.tensor.detach().clone()});
  return clones;
}
// A hash of the tensors that only this rank has.
inline std::string hash_of_single(const StateView& view) {
  std::vector<NamedTensor> single;
  for (const StateEntry& entry : view)
    if (is_of_one_rank(entry.kind)) single.push_back({entry.slice.tensor, entry.tensor});
  return sha256_of(single);
}

// A record of the engines of a test, told by their ranks' threads.
class Journal {
 public:
  void begin_anew() {
    const std::lock_guard lock(mutex_);
    loaded_.clear();
    newest_.clear();
    carried_over_.clear();
  }
  void note_loaded(int rank, const StateView& own) {
    const std::lock_guard lock(mutex_);
    loaded_[rank] = clones_of(own);
  }
  // The state before the first update of an engine.
  void note_first(const StateView& own) {
    const std::lock_guard lock(mutex_);
    if (const auto before = newest_.find(std::this_thread::get_id()); before != newest_.end())
      carried_over_.push_back(before->second == hash_of_single(own));
  }
  void note_update(const StateView& own) {
    const std::lock_guard lock(mutex_);
    newest_[std::this_thread::get_id()] = hash_of_single(own);
  }

  // [rank]: the tensors with which the rank resumed.
  std::map<int, std::map<std::string, at::Tensor>> loaded() {
    const std::lock_guard lock(mutex_);
    std::map<int, std::map<std::string, at::Tensor>> by_name;
    for (const auto& [rank, tensors] : loaded_)
      for (const auto& [name, tensor] : tensors) by_name[rank].emplace(name, tensor);
    return by_name;
  }
  // For each engine that followed another one on a thread: 1 if its rank's own tensors began with
  // the bits with which the other one's ended.
  std::vector<int> carried_over() {
    const std::lock_guard lock(mutex_);
    return carried_over_;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<NamedTensor>> loaded_;
  std::map<std::thread::id, std::string> newest_;
  std::vector<int> carried_over_;
};
inline Journal& journal() {
  static Journal instance;
  return instance;
}

// Each rank has a momentum of its own. It sends multiples of 2^-10 of it, and keeps the rest for
// the next step. The average of what all sent is the same on every rank.
class OwnEngine : public ReplicaEngine {
 public:
  explicit OwnEngine(const EngineSetting& setting) : ReplicaEngine(setting) {
    for (const auto& [name, tensor] : parameters())
      for (auto* const tensors : {&momentum_, &rest_, &average_})
        tensors->push_back(at::zeros_like(tensor));
  }
  void end_load() override {
    ReplicaEngine::end_load();
    journal().note_loaded(group().rank(), own_state());
  }

 protected:
  void exchange() override {
    if (std::exchange(is_first_, false)) journal().note_first(own_state());
    momenta_.clear(), rests_.clear(), sums_.clear();
    for (size_t i = 0; i < momentum_.size(); ++i) {
      momenta_.push_back(momentum_[i] * 0.9);
      if (const at::Tensor& gradient = parameters()[i].tensor.grad(); gradient.defined())
        momenta_[i].add_(gradient);
      const at::Tensor all = rest_[i] + momenta_[i];
      sums_.push_back((all * 1024).round() / 1024);
      rests_.push_back(all - sums_[i]);
      group().all_reduce(sums_[i]);
    }
  }
  void update() override {
    for (size_t i = 0; i < momentum_.size(); ++i) {
      momentum_[i].copy_(momenta_[i]);
      rest_[i].copy_(rests_[i]);
      average_[i].mul_(0.5).add_(sums_[i], 0.5);
      parameters()[i].tensor.sub_(average_[i], rates().at(0));
    }
    journal().note_update(own_state());
  }
  StateView own_state() override {
    StateView view;
    for (size_t i = 0; i < momentum_.size(); ++i) {
      const std::string& name = parameters()[i].name;
      view.push_back(whole("momentum/" + name, momentum_[i], StateKind::rank));
      view.push_back(whole("rest/" + name, rest_[i], StateKind::residual));
      view.push_back(whole("average/" + name, average_[i], StateKind::common));
    }
    return view;
  }

 private:
  std::vector<at::Tensor> momentum_, rest_, average_;
  std::vector<at::Tensor> momenta_, rests_, sums_;  // Of this step alone.
  bool is_first_ = true;
};

// Has one half of a tensor.
class HalfEngine : public AllReduced {
 public:
  explicit HalfEngine(const EngineSetting& setting) : AllReduced(setting) {}

 protected:
  StateView own_state() override {
    return {StateEntry{{"center", {4, 6}, {2, 0}, {2, 6}}, half_, StateKind::common}};
  }

 private:
  at::Tensor half_ = at::zeros({2, 6}, at::kDouble);
};

// A strategy stays known for the rest of the process.
class OwnStrategies : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    static std::once_flag once;
    std::call_once(once, [] {
      register_strategy(kOwn, {make_engine<OwnEngine>});
      register_strategy(kSums, {make_engine<AllReduced>, {.sync_batch_norm = true}});
      register_strategy(kHalf, {make_engine<HalfEngine>});
      register_strategy(kApart, {make_engine<OwnEngine>, {.equal_replicas = false}});
      register_strategy(kAble, {make_engine<OwnEngine>, {true, true, true, true, true, true}});
    });
  }
  void SetUp() override { journal().begin_anew(); }

  static TrainerOptions options(int64_t steps, int replicas = 1,
                                const std::string& strategy = kOwn) {
    TrainerOptions options = tests::options(replicas);
    options.strategy = strategy;
    options.steps = steps;
    return options;
  }
  static TrainerOptions options_in(const Folder& folder, int64_t steps, int replicas = 1,
                                   const std::string& strategy = kOwn) {
    TrainerOptions options = OwnStrategies::options(steps, replicas, strategy);
    options.checkpoint.dir = folder.path();
    return options;
  }
  static OptimizerFactory rate() { return SGD{.lr = 0.02}; }
};

}  // namespace trireme::tests
