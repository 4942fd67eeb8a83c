#include <trireme/records/mapped_file.h>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <trireme/records/damage.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <system_error>
#include <utility>

namespace trireme::records {
namespace {

// The handler of a signal may take no lock, so the list has a fixed number of places. A map beyond
// it has no handler, but is checked before each record all the same.
struct GuardedMap {
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> has_lost_pages{false};
};
constexpr int kMostMaps = 4096;
std::array<GuardedMap, kMostMaps>& guarded_maps() {
  static std::array<GuardedMap, kMostMaps> maps;
  return maps;
}
std::mutex guarded_maps_mutex;
thread_local LateChecks* late_checks = nullptr;
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
    if (::mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
      break;
    map.has_lost_pages.store(true, std::memory_order_release);
    errno = saved;
    return;
  }
  call_action_before(signal, info, context);
}

// Returns the map's place in the list, or -1 if the list is full.
int guard(std::span<const std::byte> bytes) {
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
    map.end.store(begin + bytes.size(), std::memory_order_release);
    map.begin.store(begin, std::memory_order_release);
    return place;
  }
  return -1;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : MappedFile(DataFile(path)) {}

MappedFile::MappedFile(DataFile file) : file_(std::move(file)) {
  if (file_.size() == 0) return;
  void* const memory = ::mmap(nullptr, file_.size(), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  if (memory == MAP_FAILED)
    throw Damage(fmt::format("it cannot be mapped: {}", std::generic_category().message(errno)),
                 "a file on a local disk, or a larger limit of memory (ulimit -v)", ErrorCode::io);
  bytes_ = {static_cast<const std::byte*>(memory), file_.size()};
  place_ = guard(bytes_);
}

MappedFile::~MappedFile() {
  if (place_ >= 0) guarded_maps()[static_cast<size_t>(place_)].begin = 0;
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

bool MappedFile::has_lost_pages() const {
  return place_ >= 0 && guarded_maps()[static_cast<size_t>(place_)].has_lost_pages;
}

void MappedFile::check_content() const {
  struct stat status {};
  if (::fstat(file_.descriptor(), &status) != 0)
    throw Damage(fmt::format("it cannot be examined: {}", std::generic_category().message(errno)),
                 "check the file and its disk", ErrorCode::io);
  if (static_cast<uint64_t>(status.st_size) < bytes_.size())
    throw Damage(fmt::format("the file had {} bytes when it was opened, and now has {}",
                             bytes_.size(), status.st_size),
                 "leave the file alone while it is read");
  if (also_) also_();
}

void MappedFile::check() const {
  if (late_checks)
    late_checks->add(*this);
  else
    check_content();
  if (has_lost_pages())
    throw Damage(
        "a part of the file could not be read, because it had become shorter or its disk "
        "failed",
        "check the file and its disk, then run again");
}

LateChecks::LateChecks() : outer_(std::exchange(late_checks, this)) {}
LateChecks::~LateChecks() { late_checks = outer_; }

void LateChecks::add(const MappedFile& file) {
  if (!files_.empty() && files_.back() == &file) return;
  if (std::ranges::find(files_, &file) == files_.end()) files_.push_back(&file);
}

bool LateChecks::are_whole() const {
  try {
    for (const MappedFile* const file : files_) {
      file->check_content();
      if (file->has_lost_pages()) return false;
    }
    return true;
  } catch (const Damage&) {
    return false;
  }
}

}  // namespace trireme::records
