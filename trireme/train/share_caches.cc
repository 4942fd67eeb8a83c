#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <trireme/train/share_caches.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

namespace trireme {
namespace {

constexpr Milliseconds kPatienceForCaches{10'000};

// Equal for processes that find each other in /proc: those of one start of a system and one name
// space of processes.
std::string name_of_processes() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  const ssize_t length = ::readlink("/proc/self/ns/pid", space.data(), space.size());
  if (boot.empty() || length <= 0) return {};
  return boot + " " + std::string(space.data(), static_cast<size_t>(length));
}

// The memory of other workers, or that which this one has made. Later pipelines of the process
// must not look for it: its descriptors may be those of other files then.
struct SharedCaches {
  std::optional<data::HostCaches> made;
  ~SharedCaches() { data::use_caches_of(""); }
};

}  // namespace

std::shared_ptr<void> share_caches(World& world, const TrainerOptions& options) {
  const membership::Identity& identity = world.identity();
  if (options.cache_bytes <= 0 || identity.local_workers < 2 || world.is_elastic() ||
      std::getenv(data::kCacheVariable))
    return nullptr;
  const std::string place = name_of_processes();
  if (place.empty()) return nullptr;
  static std::atomic<int> runs{0};  // The same number on all workers, as they all come here.
  const std::string key = fmt::format("caches of {}, run {}", place, ++runs);
  try {
    const auto caches = std::make_shared<SharedCaches>();
    if (identity.local_worker == 0) {
      caches->made.emplace(options.caches, options.cache_bytes);
      world.set_value(key, caches->made->variable());
      data::use_caches_of(caches->made->variable());
    } else {
      data::use_caches_of(world.get_value(key, Deadline::after(kPatienceForCaches)));
    }
    return caches;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timeout && error.code() != ErrorCode::io) throw;
    log_warning("this process has a cache of samples of its own: {}", parts_of(error).what);
    return nullptr;
  }
}

}  // namespace trireme
