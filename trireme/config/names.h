// The names of things of one kind among which a configuration chooses.
#pragma once
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::config {

// A list that grows when a programme registers something of its own. Any thread.
class Names {
 public:
  explicit Names(std::vector<std::string> shipped) : names_(std::move(shipped)) {}

  void add(const std::string& name) {
    const std::lock_guard lock(mutex_);
    names_.push_back(name);
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
};

// The names behind `first`, such as `auto` or `none`.
inline std::vector<std::string> with(std::string_view first, std::vector<std::string> names) {
  names.emplace(names.begin(), first);
  return names;
}

}  // namespace trireme::config
