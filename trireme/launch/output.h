// What workers print: cut into lines, and handed on line by line without ever blocking the
// supervisor.
#pragma once
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace trireme::launch {

// Cuts a stream of bytes into lines, in whatever pieces it arrives.
class LineSplitter {
 public:
  using OnLine = std::function<void(const std::string& line)>;  // Without its end of line.

  // A longer line is handed on in pieces of this size, each as a line.
  explicit LineSplitter(size_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}
  LineSplitter() : LineSplitter(64 << 10) {}
  void feed(std::string_view bytes, const OnLine& on_line);
  void finish(
      const OnLine& on_line);  // The stream has ended: a last line without end is handed on.

 private:
  size_t max_line_bytes_;
  std::string partial_;
};

// Writes lines to a descriptor that others may read slowly. Each line is one write (up to PIPE_BUF
// bytes, the most that does not mix with other writers), done only when there is room for it.
class LineWriter {
 public:
  explicit LineWriter(int fd) : fd_(fd) {}
  void write_line(std::string_view prefix, std::string_view line);

  int descriptor() const { return fd_; }
  bool has_pending() const {
    return !pending_.empty();
  }  // Then: poll for POLLOUT and call write_pending().
  bool is_full() const {
    return pending_bytes_ > kFullBytes;
  }                      // Then: take no more from the workers.
  void write_pending();  // As much as there is room for. Nobody reading: dropped.

 private:
  static constexpr size_t kFullBytes = 256 << 10;
  bool write_piece();

  int fd_;
  std::deque<std::string> pending_;
  size_t written_of_first_ = 0;
  size_t pending_bytes_ = 0;
  bool broken_ = false;
};

}  // namespace trireme::launch
