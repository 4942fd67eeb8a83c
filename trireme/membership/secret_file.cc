#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <trireme/base/descriptor.h>
#include <trireme/base/error.h>
#include <trireme/base/text.h>
#include <trireme/membership/secret_file.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

namespace trireme::membership {
namespace {

constexpr size_t kMaxBytes = 4096;

[[noreturn]] void throw_errno(const std::filesystem::path& path) {
  const ErrorCode code = errno == ENOENT ? ErrorCode::not_found : ErrorCode::io;
  throw Error(
      code, "membership",
      fmt::format("cannot read the token file {}: {}", path.string(), std::strerror(errno)));
}

}  // namespace

std::string read_secret_file(const std::filesystem::path& path, Symlink symlink) {
  // O_NONBLOCK: if the path names a pipe, open() must not wait for its writer.
  const int flags =
      O_RDONLY | O_CLOEXEC | O_NONBLOCK | (symlink == Symlink::refuse ? O_NOFOLLOW : 0);
  const Descriptor file(::open(path.c_str(), flags));
  if (!file) throw_errno(path);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) throw_errno(path);
  if (!S_ISREG(facts.st_mode))
    throw Error(ErrorCode::invalid_argument, "membership",
                fmt::format("the token file {} is not an ordinary file", path.string()));
  if (facts.st_uid != ::geteuid() && facts.st_uid != 0)
    throw Error(ErrorCode::invalid_argument, "membership",
                fmt::format("the token file {} belongs to user {}, not to this one ({})",
                            path.string(), facts.st_uid, ::geteuid()),
                "a file of your own");
  if ((facts.st_mode & 077) != 0)
    throw Error(ErrorCode::invalid_argument, "membership",
                fmt::format("the token file {} has mode {:04o}: other users may read or write it",
                            path.string(), facts.st_mode & 07777),
                "chmod 600 " + path.string());

  std::string content(kMaxBytes + 1, '\0');
  const ssize_t length = ::read(file.get(), content.data(), content.size());
  if (length < 0) throw_errno(path);
  content.resize(static_cast<size_t>(length));
  if (content.size() > kMaxBytes)
    throw Error(
        ErrorCode::invalid_argument, "membership",
        fmt::format("the token file {} is longer than {} bytes", path.string(), kMaxBytes));
  content = std::string(trimmed(content));
  if (content.empty())
    throw Error(ErrorCode::invalid_argument, "membership",
                fmt::format("the token file {} is empty", path.string()));
  return content;
}

}  // namespace trireme::membership
