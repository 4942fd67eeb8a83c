// Things of one kind that a programme registers by name.
#pragma once
#include <trireme/base/error.h>
#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace trireme::config {

// Any thread.
template <typename Thing>
class Registry {
 public:
  using Things = std::map<std::string, Thing, std::less<>>;

  // `word` stands where a name could stand, such as `auto` or `none`, and is no name.
  explicit Registry(std::string kind, Things shipped = {}, std::string word = {})
      : kind_(std::move(kind)), word_(std::move(word)), things_(std::move(shipped)) {}

  // `taken` has more names that it cannot have. Throws Error(invalid_argument) if it has the name
  // already, or if there is nothing behind the name.
  void add(const std::string& name, Thing thing, const std::vector<std::string>& taken = {}) {
    const std::lock_guard lock(mutex_);
    if (name.empty() || name == word_)
      refuse("a " + kind_ + " cannot be named '" + name + "'", "another name");
    if (!thing) refuse("nothing makes the " + kind_ + " '" + name + "'", "a function that does");
    const bool is_taken = std::find(taken.begin(), taken.end(), name) != taken.end();
    if (is_taken || !things_.emplace(name, std::move(thing)).second)
      refuse("a " + kind_ + " '" + name + "' already exists", "another name");
  }
  std::vector<std::string> names() const {  // In order, without the word.
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, thing] : things_) names.push_back(name);
    return names;
  }
  bool has(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return things_.contains(name);
  }
  // Throws Error(invalid_argument) that lists the known names.
  Thing find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    if (const auto found = things_.find(name); found != things_.end()) return found->second;
    std::string known = word_.empty() ? "" : word_ + ", ";
    for (const auto& [other, thing] : things_) known += other + ", ";
    refuse(kind_ + " '" + name + "' is not known",
           known.empty() ? "the name of a " + kind_ + " that is registered before"
                         : known + "or a name that is registered before");
  }

 private:
  [[noreturn]] static void refuse(const std::string& what, const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument, "config", what, remedy);
  }

  const std::string kind_, word_;
  mutable std::mutex mutex_;
  Things things_;
};

}  // namespace trireme::config
