#include <sys/mman.h>
#include <trireme/records/page_guard.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>

namespace trireme::records {
namespace {

// The handler of a signal may take no lock, so the list has a fixed number of places. A map beyond
// it has no handler, but is checked before each record all the same.
struct GuardedMap {
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<int> protection{PROT_READ};
  std::atomic<bool> has_lost_pages{false};
};
constexpr int kMostMaps = 4096;
std::array<GuardedMap, kMostMaps>& guarded_maps() {
  static std::array<GuardedMap, kMostMaps> maps;
  return maps;
}
std::mutex guarded_maps_mutex;
struct sigaction action_before_ours;
uintptr_t page_bytes = 4096;

void call_action_before(int signal, siginfo_t* info, void* context) {
  if ((action_before_ours.sa_flags & SA_SIGINFO) != 0)
    return action_before_ours.sa_sigaction(signal, info, context);
  if (action_before_ours.sa_handler != SIG_DFL && action_before_ours.sa_handler != SIG_IGN)
    return action_before_ours.sa_handler(signal);
  // The signal comes again when the handler returns, and now ends the process.
  ::sigaction(signal, &action_before_ours, nullptr);
  ::raise(signal);
}

void replace_lost_page(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (GuardedMap& map : guarded_maps()) {
    const uintptr_t begin = map.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= map.end.load(std::memory_order_acquire))
      continue;
    void* const page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
    if (::mmap(page, page_bytes, map.protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
      break;
    map.has_lost_pages.store(true, std::memory_order_release);
    errno = saved;
    return;
  }
  call_action_before(signal, info, context);
}

// Returns the map's place in the list, or -1 if the list is full.
int guard(std::span<const std::byte> bytes, PageGuard::Access access) {
  static const bool is_installed = [] {
    guarded_maps();
    page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction ours {};
    ours.sa_sigaction = replace_lost_page;
    ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    ::sigemptyset(&ours.sa_mask);
    return ::sigaction(SIGBUS, &ours, &action_before_ours) == 0;
  }();
  if (!is_installed) return -1;
  const std::lock_guard lock(guarded_maps_mutex);
  for (int place = 0; place < kMostMaps; ++place) {
    GuardedMap& map = guarded_maps()[static_cast<size_t>(place)];
    if (map.begin.load() != 0) continue;
    const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
    map.has_lost_pages = false;
    map.protection = access == PageGuard::Access::write ? PROT_READ | PROT_WRITE : PROT_READ;
    map.end.store(begin + bytes.size(), std::memory_order_release);
    map.begin.store(begin, std::memory_order_release);
    return place;
  }
  return -1;
}

}  // namespace

PageGuard::PageGuard(std::span<const std::byte> map, Access access) : place_(guard(map, access)) {}

PageGuard::~PageGuard() {
  if (place_ >= 0) guarded_maps()[static_cast<size_t>(place_)].begin = 0;
}

bool PageGuard::has_lost_pages() const {
  return place_ >= 0 && guarded_maps()[static_cast<size_t>(place_)].has_lost_pages;
}

}  // namespace trireme::records
