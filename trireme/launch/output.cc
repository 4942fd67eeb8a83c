#include <trireme/launch/output.h>

#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <climits>

namespace trireme::launch {

void LineSplitter::feed(std::string_view bytes, const OnLine& on_line) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const size_t room = max_line_bytes_ - partial_.size();
    const size_t taken = std::min({end, room, bytes.size()});
    partial_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    const bool ends_here = !bytes.empty() && bytes.front() == '\n';
    if (ends_here) bytes.remove_prefix(1);
    if (ends_here || (partial_.size() == max_line_bytes_ && !bytes.empty())) {
      on_line(partial_);
      partial_.clear();
    }
  }
}

void LineSplitter::finish(const OnLine& on_line) {
  if (!partial_.empty()) on_line(partial_);
  partial_.clear();
}

void LineWriter::write_line(std::string_view prefix, std::string_view line) {
  if (broken_) return;
  std::string text;
  text.reserve(prefix.size() + line.size() + 1);
  text.append(prefix).append(line).push_back('\n');
  pending_bytes_ += text.size();
  pending_.push_back(std::move(text));
  write_pending();
}

void LineWriter::write_pending() {
  while (!pending_.empty() && write_piece()) {
  }
  if (!broken_) return;
  pending_.clear();
  pending_bytes_ = 0;
}

// Returns false when there is no room now. A pipe that polls as writable takes PIPE_BUF bytes
// without blocking.
bool LineWriter::write_piece() {
  pollfd room{fd_, POLLOUT, 0};
  if (::poll(&room, 1, 0) <= 0) return false;
  const std::string& line = pending_.front();
  const size_t bytes = std::min<size_t>(line.size() - written_of_first_, PIPE_BUF);
  const ssize_t written = ::write(fd_, line.data() + written_of_first_, bytes);
  if (written < 0) {
    broken_ = errno != EINTR && errno != EAGAIN;
    return false;
  }
  pending_bytes_ -= static_cast<size_t>(written);
  written_of_first_ += static_cast<size_t>(written);
  if (written_of_first_ == line.size()) {
    pending_.pop_front();
    written_of_first_ = 0;
  }
  return true;
}

}  // namespace trireme::launch
