#include <trireme/net/requests/frame_writer.h>
#include <algorithm>

namespace trireme::net {
namespace {

constexpr Milliseconds kWriteSlice{2};  // Between two calls of `while_waiting`.

// Removes the first `bytes` bytes of the pieces. Returns the pieces that are left.
std::span<iovec> without_first(std::span<iovec> pieces, size_t bytes) {
  while (!pieces.empty() && bytes >= pieces.front().iov_len) {
    bytes -= pieces.front().iov_len;
    pieces = pieces.subspan(1);
  }
  if (!pieces.empty()) {
    pieces.front().iov_base = static_cast<std::byte*>(pieces.front().iov_base) + bytes;
    pieces.front().iov_len -= bytes;
  }
  return pieces;
}

}  // namespace

size_t FrameWriter::write_some(std::span<iovec> pieces) {
  constexpr size_t kMostPieces = 512;  // Below the kernel's limit for a call (IOV_MAX).
  const size_t bytes = stream_.write_some(pieces.first(std::min(pieces.size(), kMostPieces)));
  total_.fetch_add(bytes, std::memory_order_relaxed);
  return bytes;
}

bool FrameWriter::write_copied() {
  while (copied_sent_ < copied_.size()) {
    iovec piece{copied_.data() + copied_sent_, copied_.size() - copied_sent_};
    const size_t bytes = write_some({&piece, 1});
    if (bytes == 0) return false;
    copied_sent_ += bytes;
  }
  copied_ = {};
  copied_sent_ = 0;
  return true;
}

bool FrameWriter::take_turn(Deadline deadline, const std::function<void()>& while_waiting) {
  std::unique_lock lock(mutex_);
  while (busy_) {
    const auto slice = Deadline::Clock::now() + kWriteSlice;
    if (changed_.wait_until(lock, std::min(slice, deadline.at())) == std::cv_status::no_timeout)
      continue;
    lock.unlock();
    while_waiting();
    if (deadline.expired()) return false;
    lock.lock();
  }
  busy_ = true;
  return true;
}

void FrameWriter::end_turn() {
  {
    std::lock_guard lock(mutex_);
    busy_ = false;
    copied_.insert(copied_.end(), posted_.begin(), posted_.end());
    posted_.clear();
  }
  changed_.notify_one();
}

bool FrameWriter::write(std::span<iovec> pieces, Deadline deadline,
                        const std::function<void()>& while_waiting) {
  if (!take_turn(deadline, while_waiting)) return false;
  struct Turn {
    FrameWriter& writer;
    ~Turn() { writer.end_turn(); }
  } turn{*this};
  bool begun = false;
  pieces = without_first(pieces, 0);
  for (;;) {
    if (write_copied()) {
      for (size_t bytes = 1; bytes > 0 && !pieces.empty();) {
        bytes = write_some(pieces);
        begun = begun || bytes > 0;
        pieces = without_first(pieces, bytes);
      }
      if (pieces.empty()) return true;
    }
    const auto copy_rest = [&] {
      for (const iovec& piece : begun ? pieces : std::span<iovec>()) {
        const auto* const data = static_cast<const std::byte*>(piece.iov_base);
        copied_.insert(copied_.end(), data, data + piece.iov_len);
      }
    };
    if (deadline.expired()) {
      copy_rest();
      return false;
    }
    stream_.wait_to_write(std::min(Deadline::Clock::now() + kWriteSlice, deadline.at()));
    while_waiting();
  }
}

void FrameWriter::post(std::span<const std::byte> frame) {
  {
    std::lock_guard lock(mutex_);
    if (busy_) {
      posted_.insert(posted_.end(), frame.begin(), frame.end());
      return;
    }
    busy_ = true;
  }
  copied_.insert(copied_.end(), frame.begin(), frame.end());
  try {
    write_copied();
  } catch (const std::exception&) {
    // The reader finds the end of the stream.
  }
  end_turn();
}

}  // namespace trireme::net
