// Mapped files whose end may be cut by somebody else. The system answers an access behind the end
// with the signal SIGBUS, which would end the process.
#pragma once
#include <cstddef>
#include <span>

namespace trireme::records {

// While it lives, a page of the map that is lost becomes a page of zeros. Any number of threads.
// Signals that do not belong to a map go to the handler that was there before.
class PageGuard {
 public:
  enum class Access { read, write };

  // `access` is what the process may do with the map. Guards beyond the first 4096 that live at
  // a time have no effect.
  explicit PageGuard(std::span<const std::byte> map, Access access = Access::read);
  ~PageGuard();
  PageGuard(const PageGuard&) = delete;
  PageGuard& operator=(const PageGuard&) = delete;

  // Once true, it stays so.
  bool has_lost_pages() const;

 private:
  const int place_;  // In the list of the handler; -1: it is full.
};

}  // namespace trireme::records
