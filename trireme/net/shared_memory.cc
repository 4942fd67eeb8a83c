#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <trireme/base/control_groups.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/net/shared_memory.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14. The headers of older systems lack the name.
#endif

namespace trireme::net {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr const char* kRemedy =
    "more memory for the job, fewer replicas on this host, or strategy.share_parameters=false";
constexpr const char* kFileRemedy = "a folder of a disk with more space, or memory.offload=none";

[[noreturn]] void refuse(const MemoryUse& use, size_t bytes, const std::string& why) {
  throw Error(
      ErrorCode::io, "net",
      fmt::format("no shared memory of {} for {}: {}", format_bytes(bytes), use.purpose, why),
      use.remedy.empty() ? kRemedy : use.remedy);
}

std::string folder_key_of(const MemoryUse& use) {
  return use.folder_key.empty() ? "memory.swap_dir" : use.folder_key;
}

// The part of a message about the space that is free in a folder; empty if nobody knows it.
std::string free_space_in(const std::string& folder) {
  struct statvfs facts {};
  if (::statvfs(folder.c_str(), &facts) != 0) return {};
  return fmt::format(", and {} are free",
                     format_bytes(static_cast<int64_t>(facts.f_bavail * facts.f_frsize)));
}

[[noreturn]] void refuse_file(const MemoryUse& use, size_t bytes, const std::string& folder,
                              const std::string& free, int error) {
  throw Error(
      ErrorCode::io, "net",
      fmt::format("no file for {} in {} {}: it needs {}{}: {}", use.purpose, folder_key_of(use),
                  folder, format_bytes(static_cast<int64_t>(bytes)), free, std::strerror(error)),
      use.remedy.empty() ? kFileRemedy : use.remedy);
}

// Takes space for the range. Returns an error number, or 0.
int take_space(int file, size_t from, size_t bytes) {
  int failure = 0;
  do failure = posix_fallocate(file, static_cast<off_t>(from), static_cast<off_t>(bytes));
  while (failure == EINTR);
  return failure;
}

std::byte* map(size_t bytes, int descriptor, const MemoryUse& use) {
  const int kind = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, descriptor, 0);
  if (data == MAP_FAILED) refuse(use, bytes, std::strerror(errno));
  return static_cast<std::byte*>(data);
}

}  // namespace

int64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  int64_t available = std::numeric_limits<int64_t>::max();
  for (std::string word; file >> word;) {
    if (word != "MemAvailable:") continue;
    int64_t kib = 0;
    if (file >> kib) available = kib * 1024;
    break;
  }
  return std::min(available, room_in_control_groups().memory);
}

SharedMemory SharedMemory::create(size_t bytes, Sharing sharing, MemoryUse use) {
  SharedMemory memory;
  memory.use_ = std::move(use);
  if (sharing == Sharing::processes) {
    memory.descriptor_ = Descriptor(memfd_create("trireme", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memory.descriptor_) refuse(memory.use_, bytes, std::strerror(errno));
    if (ftruncate(memory.descriptor_.get(), static_cast<off_t>(bytes)) != 0)
      refuse(memory.use_, bytes, std::strerror(errno));
  }
  memory.data_ = map(bytes, memory.descriptor(), memory.use_);
  memory.bytes_ = bytes;
  if (sharing == Sharing::threads && bytes >= kHugePage)
    madvise(memory.data_, bytes, MADV_HUGEPAGE);  // This is only a hint; any result will do.
  return memory;
}

SharedMemory SharedMemory::create_in(const std::string& folder, size_t bytes, MemoryUse use) {
  SharedMemory memory;
  memory.use_ = std::move(use);
  memory.folder_ = folder;
  memory.descriptor_ = make_nameless_file(folder);
  if (!memory.descriptor_ || ftruncate(memory.descriptor_.get(), static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    refuse_file(memory.use_, bytes, folder, free_space_in(folder), error);
  }
  if (is_in_memory(folder))
    log_warning("{} {} is in memory (tmpfs): {} there takes memory of this host",
                folder_key_of(memory.use_), folder, memory.use_.purpose);
  memory.data_ = map(bytes, memory.descriptor(), memory.use_);
  memory.bytes_ = bytes;
  return memory;
}

SharedMemory SharedMemory::open(Descriptor descriptor, MemoryUse use, std::string folder) {
  SharedMemory memory;
  memory.folder_ = std::move(folder);
  memory.descriptor_ = std::move(descriptor);
  memory.use_ = std::move(use);
  struct stat facts {};
  if (fstat(memory.descriptor(), &facts) != 0 || facts.st_size <= 0)
    throw Error(ErrorCode::corrupt, "net",
                fmt::format("the descriptor received for {} is not a memory segment",
                            memory.use_.purpose));
  memory.bytes_ = static_cast<size_t>(facts.st_size);
  memory.data_ = map(memory.bytes_, memory.descriptor(), memory.use_);
  return memory;
}

SharedMemory::~SharedMemory() {
  if (data_) munmap(data_, bytes_);
}
SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(use_, other.use_);
  std::swap(folder_, other.folder_);
  return *this;
}

void SharedMemory::reserve(size_t from, size_t bytes) {
  if (bytes == 0) return;
  if (!folder_.empty()) {
    const std::string free = free_space_in(folder_);  // Before a part of it is taken.
    if (const int failure = take_space(descriptor(), from, bytes); failure != 0)
      refuse_file(use_, bytes, folder_, free, failure);
    return;
  }
  // A full control group kills processes instead of refusing memory, so the sizes are compared
  // first.
  if (const int64_t available = available_memory_bytes(); static_cast<int64_t>(bytes) > available)
    refuse(use_, bytes, fmt::format("{} are available", format_bytes(available)));
  if (!descriptor_) return;
  if (const int failure = take_space(descriptor(), from, bytes); failure != 0)
    refuse(use_, bytes, std::strerror(failure));
}

void SharedMemory::seal_size() {
  if (::fcntl(descriptor(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw Error(ErrorCode::io, "net",
                fmt::format("shared memory for {}: its size cannot be sealed: {}", use_.purpose,
                            std::strerror(errno)));
}

void SharedMemory::prefault(size_t from, size_t bytes) const {
  if (!folder_.empty()) return;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t first = from / page * page;
  // If the kernel cannot do this, the first use of each page does it.
  madvise(data_ + first, std::min(bytes_, from + bytes) - first, MADV_POPULATE_WRITE);
}

}  // namespace trireme::net
