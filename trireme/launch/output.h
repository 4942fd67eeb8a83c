// The output of workers: it is cut into lines, and each line is written without blocking the
// supervisor.
#pragma once
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace trireme::launch {

// Cuts a stream of bytes into lines. The bytes may arrive in pieces of any size.
class LineSplitter {
 public:
  using OnLine = std::function<void(const std::string& line)>;  // `line` has no newline.

  // Passes a longer line on in pieces of this size, each as a line.
  explicit LineSplitter(size_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}
  LineSplitter() : LineSplitter(64 << 10) {}
  void feed(std::string_view bytes, const OnLine& on_line);
  // Call it when the stream has ended. Passes on a last line that has no newline.
  void finish(const OnLine& on_line);

 private:
  size_t max_line_bytes_;
  std::string partial_;
};

// Writes lines to a descriptor whose reader may be slow. A line of up to PIPE_BUF bytes is one
// write, which does not mix with those of other processes. Each write waits until there is room.
class LineWriter {
 public:
  explicit LineWriter(int fd) : fd_(fd) {}
  void write_line(std::string_view prefix, std::string_view line);

  int descriptor() const { return fd_; }
  // If true, poll for POLLOUT and call write_pending().
  bool has_pending() const { return !pending_.empty(); }
  // If true, read no more from the workers.
  bool is_full() const { return pending_bytes_ > kFullBytes; }
  // Writes the lines for which there is room. Drops all lines once the descriptor has no reader.
  void write_pending();

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
