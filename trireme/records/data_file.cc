#include <trireme/records/data_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <trireme/checkpoint/digest.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

namespace trireme::records {
namespace {

constexpr uint64_t kMarkBytes = 64 << 10;

}  // namespace

Damage refused_by_system(std::string_view doing, int reason) {
  const std::string why = std::generic_category().message(reason);
  if (reason == ENOENT || reason == ENOTDIR)
    return Damage(fmt::format("cannot {} it: {}", doing, why), "correct the path",
                  ErrorCode::not_found);
  const std::string remedy = reason == ESTALE ? "mount the network file system again"
                             : reason == EMFILE || reason == ENFILE
                                 ? "a larger limit of open files (ulimit -n)"
                                 : "check the file, its disk and its permissions";
  return Damage(fmt::format("cannot {} it: {}", doing, why), remedy, ErrorCode::io);
}

DataFile::DataFile(const char* path)
    // O_NONBLOCK: a pipe must not block.
    : descriptor_(::open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (!descriptor_) throw refused_by_system("open", errno);
  examine();
}

DataFile::DataFile(Descriptor descriptor, int64_t stamp) : descriptor_(std::move(descriptor)) {
  examine();
  mtime_ns_ = stamp;
}

void DataFile::examine() {
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0) throw refused_by_system("examine", errno);
  if (!S_ISREG(status.st_mode))
    throw refused_by_system("open", S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
  size_ = static_cast<uint64_t>(status.st_size);
  mtime_ns_ = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
}

void DataFile::read(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw refused_by_system("read", errno);
    if (count == 0)
      throw Damage(fmt::format("the file ends at byte {}, before the {} bytes that should follow",
                               offset, bytes.size()));
    offset += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

FileIdentity DataFile::identity() const {
  std::vector<std::byte> marks(std::min(size_, 2 * kMarkBytes));
  const size_t head = std::min<size_t>(marks.size(), kMarkBytes);
  read(0, std::span(marks).first(head));
  read(size_ - (marks.size() - head), std::span(marks).subspan(head));
  return {.name = {},
          .bytes = static_cast<int64_t>(size_),
          .mtime_ns = mtime_ns_,
          .digest = digest_of(marks)};
}

int64_t time_of_file(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
}

std::string digest_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : checkpoint::digest_of_piece(bytes))
    text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

std::string digest_of(std::string_view text) { return digest_of(std::as_bytes(std::span(text))); }

}  // namespace trireme::records
