#include <trireme/config/registration.h>

#include <exception>
#include <mutex>
#include <utility>

namespace trireme::config {
namespace {

struct Kept {
  std::mutex mutex;
  std::exception_ptr first;
};
Kept& kept() {
  static Kept only;
  return only;
}

}  // namespace

bool register_early(const std::function<void()>& action) noexcept {
  try {
    action();
  } catch (...) {
    const std::lock_guard lock(kept().mutex);
    if (!kept().first) kept().first = std::current_exception();
  }
  return true;
}

void throw_if_registration_failed() {
  const std::lock_guard lock(kept().mutex);
  if (const std::exception_ptr first = std::exchange(kept().first, nullptr))
    std::rethrow_exception(first);
}

}  // namespace trireme::config
