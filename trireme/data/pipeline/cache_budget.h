// The memory that several caches may take together: those of the training part and the test part,
// in all processes of a host. No torch.
#pragma once
#include <trireme/base/descriptor.h>
#include <trireme/net/shared_memory.h>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace trireme::data {

// The environment variable by which a launcher tells its workers of memory for caches:
// "PID:DESCRIPTOR,DESCRIPTOR,...". The first one has the budget.
inline constexpr const char* kCacheVariable = "TRIREME_CACHE";

// The remedy if there is too little memory for caches.
inline constexpr const char* kRemedyOfCaches =
    "more memory for the job, a smaller data.cache_bytes, or cache(disk)";

// Uses the memory of another process of this host, as if the variable had this value. Call it
// before the first sample is loaded. Any thread.
void use_caches_of(const std::string& value);

// The descriptors of that memory, opened in this process. Empty: there is none, or the process
// that made it is gone.
std::vector<Descriptor> memories_of_host();

// Any thread of any process.
class CacheBudget {
 public:
  static std::shared_ptr<CacheBudget> of_process(int64_t limit_bytes);
  // In memory that other processes map. A process that is killed between take() and its use of the
  // bytes loses them for the others.
  static std::shared_ptr<CacheBudget> shared(net::SharedMemory memory);

  // Becomes the budget of the host's memory, if there is any. Call it before take(). Throws
  // Error(io).
  void find_host();
  // False: so many bytes are not left.
  bool take(int64_t bytes);
  void give_back(int64_t bytes);  // Bytes that were taken and not used.
  int64_t limit() const;
  int64_t taken() const;
  // The caches of a process announce here how many bytes they need, in the same order in all
  // processes. False: they do not fit together into the limit that this budget had at first, which
  // may be a part of the host's.
  bool plan(int64_t bytes);

 private:
  friend class HostCaches;
  struct Account;
  CacheBudget(net::SharedMemory memory) : memory_(std::move(memory)), own_limit_(limit()) {}
  static bool is_account(const net::SharedMemory& memory);
  static void begin_account(const net::SharedMemory& memory, int64_t limit);
  Account& account() const;

  net::SharedMemory memory_;
  const int64_t own_limit_;
  std::once_flag found_;
  std::mutex mutex_;  // Guards planned_.
  int64_t planned_ = 0;
};

// Made by a launcher before it starts workers, or by one of the workers of a host; lives as long
// as they train.
class HostCaches {
 public:
  // Memory without content for `count` caches of at most so many bytes together. None is taken
  // before a sample is added. Throws Error(io).
  HostCaches(int count, int64_t bytes);
  std::string variable() const;  // The value of kCacheVariable.

 private:
  std::vector<net::SharedMemory> memories_;
};

}  // namespace trireme::data
