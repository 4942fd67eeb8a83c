// A record of how a model was made: the operations in their order, and the storages that each of
// them read and wrote. From it follows which operations must run to make certain tensors.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme {

struct ConstructionStep {
  std::string operation;
  // The numbers of storages. A storage that an operation changes is in both lists.
  std::vector<int> reads, writes;
  // The result is small and depends on nothing that is hollow, so it was computed at once. The
  // model's code may have looked at it.
  bool is_real = false;
  // The amount of random numbers depends on the values that the operation reads.
  bool draws_by_data = false;
};

class ConstructionRecord {
 public:
  std::vector<ConstructionStep> steps;

  // Storages that were made while the record was taken have numbers, in that order.
  int add(const c10::Storage& storage);
  std::optional<int> number_of(const c10::Storage& storage) const;
  int storages() const { return static_cast<int>(storages_.size()); }
  c10::Storage storage(int number) const;  // Null if nobody holds it any more.

  // Returns for each step whether it must run with memory so that these storages get their values.
  std::vector<bool> steps_for(const std::set<int>& storages) const;

  // Remembers the generator's state before its first use.
  void will_draw_from(at::Generator generator);
  // The generators that were used, each with the state that it had before.
  using States = std::vector<std::pair<at::Generator, at::Tensor>>;
  const States& states_before() const { return states_before_; }

 private:
  // A weak pointer keeps the address from being used again, but frees the memory.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
  std::unordered_map<const c10::StorageImpl*, int> numbers_;
  States states_before_;
};

ConstructionRecord::States states_now(const ConstructionRecord::States& generators);
void restore(const ConstructionRecord::States& states);

}  // namespace trireme
