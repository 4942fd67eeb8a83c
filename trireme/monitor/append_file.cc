#include <trireme/monitor/append_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

namespace trireme::monitor {

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code failure;
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), failure);
  if (failure) {
    throw Error(ErrorCode::io, "monitor",
                fmt::format("cannot make the folder '{}': {}", path_.parent_path().string(),
                            failure.message()),
                "choose a folder that can be written");
  }
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) {
    throw Error(
        ErrorCode::io, "monitor",
        fmt::format("cannot open '{}' for writing: {}", path_.string(), std::strerror(errno)),
        "choose a file that can be written");
  }
}

AppendFile::~AppendFile() { ::close(file_); }

void AppendFile::append(std::string_view record) {
  while (!record.empty()) {
    const ssize_t written = ::write(file_, record.data(), record.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      throw Error(ErrorCode::io, "monitor",
                  fmt::format("cannot write to '{}': {}", path_.string(), std::strerror(errno)),
                  "make room on the disk, or turn this output off");
    }
    record.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace trireme::monitor
