// Little memory for one process: while an object lives, the process may map only so many bytes
// more, so that a test notices a size that is allocated before it is checked.
#pragma once
#include <sys/resource.h>
#include <unistd.h>
#include <cstdint>
#include <fstream>

namespace trireme {

// Has no effect with a sanitizer, which maps much memory of its own.
class MemoryLimit {
 public:
  explicit MemoryLimit(uint64_t more_bytes) {
    ::getrlimit(RLIMIT_AS, &before_);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const auto now = static_cast<rlim_t>(pages) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
    const rlimit limited{now + more_bytes, before_.rlim_max};
    if (pages > 0) ::setrlimit(RLIMIT_AS, &limited);
#else
    static_cast<void>(more_bytes);
#endif
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace trireme
