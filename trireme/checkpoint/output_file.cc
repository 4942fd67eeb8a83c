#include <trireme/checkpoint/output_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/checkpoint/leftovers.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <system_error>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr size_t kChunkBytes = 1 << 20;  // Stays in cache between hashing and writing.

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

}  // namespace

OutputFile::OutputFile(fs::path path) : path_(std::move(path)), unfinished_(folder_of(path_) / writing_name(path_.filename().string())) {
  descriptor_ = ::open(unfinished_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("create", errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(unfinished_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto chunk = bytes.first(std::min(bytes.size(), kChunkBytes));
    const ssize_t count = ::write(descriptor_, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("write", errno);
    sha_.update(chunk.first(static_cast<size_t>(count)));
    written_ += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

std::string OutputFile::finish() {
  if (::fsync(descriptor_) != 0) fail("write", errno);
  if (::rename(unfinished_.c_str(), path_.c_str()) != 0) fail("rename", errno);
  ::close(descriptor_);
  descriptor_ = -1;
  sync_folder(folder_of(path_));
  return sha_.hex();
}

void OutputFile::fail(const char* doing, int error_number) const {
  const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  throw Error(
      ErrorCode::io, "checkpoint",
      fmt::format("cannot {} {}: {} after {} bytes", doing, path_.string(), std::generic_category().message(error_number), written_),
      full ? "free space there, or choose a folder on another disk" : "check the folder and its permissions");
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // EINVAL: a file system that cannot sync folders, and so needs no such call.
  const bool synced = descriptor >= 0 && (::fsync(descriptor) == 0 || errno == EINVAL);
  const int error_number = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!synced)
    throw Error(ErrorCode::io, "checkpoint",
                fmt::format("cannot sync the folder {}: {}", folder.string(), std::generic_category().message(error_number)),
                "check the disk");
}

}  // namespace trireme::checkpoint
