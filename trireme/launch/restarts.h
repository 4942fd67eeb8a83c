// When a side task that was lost gets another process. Pure.
#pragma once
#include <trireme/base/deadline.h>
#include <optional>

namespace trireme::launch {

struct RestartRules {
  // A process that lived for less than this, or never joined, died early.
  Milliseconds early{10000};
  int most_early = 5;  // After so many early deaths in a row no other process is started.
  // The pause after the second early death in a row. It doubles with each further one.
  Milliseconds first_pause{1000};
};

class Restarts {
 public:
  explicit Restarts(const RestartRules& rules = {}) : rules_(rules) {}
  // A process of the task has ended, or could not be started. Returns the time until the next one
  // is to be started; empty if there is to be none.
  std::optional<Milliseconds> after(bool had_joined, Milliseconds lived) {
    early_ = had_joined && lived >= rules_.early ? 0 : early_ + 1;
    if (early_ >= rules_.most_early) return std::nullopt;
    if (early_ < 2) return Milliseconds(0);
    return rules_.first_pause * (1 << (early_ - 2));
  }
  int early() const { return early_; }  // The early deaths in a row.

 private:
  RestartRules rules_;
  int early_ = 0;
};

}  // namespace trireme::launch
