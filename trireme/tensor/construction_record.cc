#include <trireme/tensor/construction_record.h>
#include <algorithm>
#include <mutex>

namespace trireme {

int ConstructionRecord::add(const c10::Storage& storage) {
  const int number = storages();
  storages_.push_back(storage.getWeakStorageImpl());
  numbers_[storage.unsafeGetStorageImpl()] = number;
  return number;
}

std::optional<int> ConstructionRecord::number_of(const c10::Storage& storage) const {
  const auto found = numbers_.find(storage.unsafeGetStorageImpl());
  if (found == numbers_.end()) return std::nullopt;
  return found->second;
}

c10::Storage ConstructionRecord::storage(int number) const {
  return {storages_[static_cast<size_t>(number)].lock()};
}

std::vector<bool> ConstructionRecord::steps_for(const std::set<int>& wanted) const {
  std::set<int> needed = wanted;
  std::vector<bool> must_run(steps.size(), false);
  for (size_t i = steps.size(); i-- > 0;) {
    const ConstructionStep& step = steps[i];
    must_run[i] = step.is_real || step.draws_by_data ||
                  std::ranges::any_of(step.writes, [&](int n) { return needed.contains(n); });
    // A step that writes may write only a part, so what was there before is needed too.
    if (must_run[i]) {
      needed.insert(step.reads.begin(), step.reads.end());
      needed.insert(step.writes.begin(), step.writes.end());
    }
  }
  return must_run;
}

void ConstructionRecord::will_draw_from(at::Generator generator) {
  for (const auto& [known, state] : states_before_)
    if (known == generator) return;
  const std::lock_guard lock(generator.mutex());
  states_before_.emplace_back(generator, generator.get_state());
}

ConstructionRecord::States states_now(const ConstructionRecord::States& generators) {
  ConstructionRecord::States states;
  for (auto [generator, state] : generators) {
    const std::lock_guard lock(generator.mutex());
    states.emplace_back(generator, generator.get_state());
  }
  return states;
}

void restore(const ConstructionRecord::States& states) {
  for (auto [generator, state] : states) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

}  // namespace trireme
