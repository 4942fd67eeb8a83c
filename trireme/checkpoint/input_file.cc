#include <trireme/checkpoint/input_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <trireme/base/error.h>
#include <unistd.h>
#include <cerrno>
#include <system_error>

namespace trireme::checkpoint {
namespace {

[[noreturn]] void fail(const char* doing, const std::filesystem::path& path, int reason) {
  throw Error(reason == ENOENT ? ErrorCode::not_found : ErrorCode::io, "checkpoint",
              fmt::format("cannot {} {}: {}", doing, path.string(),
                          std::generic_category().message(reason)),
              "correct the path, or check its permissions");
}

}  // namespace

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  // O_NONBLOCK: a pipe must not block.
  descriptor_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!descriptor_) fail("open", path_, errno);
  struct stat status {};
  const int reason = ::fstat(descriptor_.get(), &status) != 0 ? errno
                     : S_ISDIR(status.st_mode)                ? EISDIR
                     : !S_ISREG(status.st_mode)               ? EINVAL
                                                              : 0;
  size_ = static_cast<uint64_t>(status.st_size);
  if (reason != 0) fail("open", path_, reason);
}

void InputFile::read(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read", path_, errno);
    if (count == 0)
      throw Error(ErrorCode::corrupt, "checkpoint",
                  fmt::format("{} ends at byte {}", path_.string(), offset),
                  "an older checkpoint");
    offset += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void InputFile::read(uint64_t offset, std::span<const std::span<std::byte>> parts) const {
  for (const auto& part : parts) {
    read(offset, part);
    offset += part.size();
  }
}

}  // namespace trireme::checkpoint
