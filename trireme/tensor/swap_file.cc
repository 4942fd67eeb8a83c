#include <trireme/tensor/swap_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/units.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

namespace trireme {
namespace {

constexpr int64_t kBounceBytes = 1 << 20;
constexpr int64_t kGrowBytes = 64 << 20;  // A file of few extents is faster than one of many.

}  // namespace

void FreeAligned::operator()(std::byte* memory) const { std::free(memory); }

AlignedBytes aligned_bytes(int64_t bytes) {
  void* const memory =
      std::aligned_alloc(kSwapBlock, static_cast<size_t>(std::max(swap_bytes(bytes), kSwapBlock)));
  if (memory == nullptr) throw std::bad_alloc();
  return AlignedBytes(static_cast<std::byte*>(memory));
}

SwapFile::SwapFile(const std::string& folder)
    : folder_(folder), bounce_(aligned_bytes(kBounceBytes)) {
  file_ = make_nameless_file(folder_, O_DIRECT);
  is_direct_ = file_ && can_be_direct();
  if (!is_direct_) file_ = make_nameless_file(folder_);
  if (!file_) refuse("cannot make a swap file", errno);
}

// Some file systems accept the flag and refuse the first write.
bool SwapFile::can_be_direct() {
  std::memset(bounce_.get(), 0, kSwapBlock);
  return ::pwrite(file_.get(), bounce_.get(), kSwapBlock, 0) == kSwapBlock &&
         ::pread(file_.get(), bounce_.get(), kSwapBlock, 0) == kSwapBlock;
}

int64_t SwapFile::take(int64_t bytes) {
  const int64_t wanted = swap_bytes(bytes);
  auto best = free_.end();
  for (auto region = free_.begin(); region != free_.end(); ++region)
    if (region->second >= wanted && (best == free_.end() || region->second < best->second))
      best = region;
  if (best == free_.end()) {
    const int64_t end = size_;
    give_back(end, grow(wanted));
    return take(bytes);
  }
  const auto [place, size] = *best;
  free_.erase(best);
  if (size > wanted) free_.emplace(place + wanted, size - wanted);
  return place;
}

// Makes the file longer by at least so many bytes. Returns by how many.
int64_t SwapFile::grow(int64_t bytes) {
  int error = 0;
  for (const int64_t more : {std::max(bytes, kGrowBytes), bytes}) {
    error = ::posix_fallocate(file_.get(), size_, more);
    if (error == 0) {
      size_ += more;
      return more;
    }
  }
  refuse(fmt::format("cannot make the swap file longer by {}: it has {}", format_bytes(bytes),
                     format_bytes(size_)),
         error);
}

void SwapFile::give_back(int64_t place, int64_t bytes) {
  auto region = free_.emplace(place, swap_bytes(bytes)).first;
  if (const auto next = std::next(region);
      next != free_.end() && place + region->second == next->first) {
    region->second += next->second;
    free_.erase(next);
  }
  if (region == free_.begin()) return;
  const auto before = std::prev(region);
  if (before->first + before->second != place) return;
  before->second += region->second;
  free_.erase(region);
}

void SwapFile::write(int64_t place, const std::byte* data, int64_t bytes) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(data) % kSwapBlock == 0;
  for (int64_t done = 0; done < bytes;) {
    const int64_t whole = (bytes - done) / kSwapBlock * kSwapBlock;
    const std::byte* from = data + done;
    int64_t size = whole;
    if (is_direct_ && (!is_aligned || whole == 0)) {
      size = std::min(bytes - done, kBounceBytes);
      std::memcpy(bounce_.get(), from, static_cast<size_t>(size));
      from = bounce_.get();
    } else if (!is_direct_) {
      size = std::min(bytes - done, kGrowBytes);
    }
    const int64_t asked = is_direct_ ? swap_bytes(size) : size;
    const int64_t written = ::pwrite(file_.get(), from, static_cast<size_t>(asked), place + done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      refuse(fmt::format("cannot write {} into the swap file", format_bytes(bytes)), errno);
    // A direct write that ends early ends between two blocks.
    done += is_direct_ ? written / kSwapBlock * kSwapBlock : written;
  }
  if (is_direct_) return;
  ::sync_file_range(
      file_.get(), place, bytes,
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  ::posix_fadvise(file_.get(), place, bytes, POSIX_FADV_DONTNEED);
}

void SwapFile::read(int64_t place, std::byte* data, int64_t bytes) {
  const int64_t asked = is_direct_ ? swap_bytes(bytes) : bytes;
  for (int64_t done = 0; done < bytes;) {
    const int64_t got =
        ::pread(file_.get(), data + done, static_cast<size_t>(asked - done), place + done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      refuse(fmt::format("cannot read {} from the swap file", format_bytes(bytes)),
             got < 0 ? errno : EIO);
    done += is_direct_ && done + got < bytes ? got / kSwapBlock * kSwapBlock : got;
  }
  if (!is_direct_) ::posix_fadvise(file_.get(), place, bytes, POSIX_FADV_DONTNEED);
}

void SwapFile::refuse(const std::string& what, int error) const {
  throw Error(ErrorCode::io, "tensor",
              fmt::format("{} in memory.swap_dir {}: {}", what, folder_, std::strerror(error)),
              "a folder of a disk with more space, or another memory.policy");
}

}  // namespace trireme
