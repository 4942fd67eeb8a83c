#include <trireme/net/requests/frame_writer.h>
#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

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
  try {
    const size_t bytes = stream_.write_some(pieces.first(std::min(pieces.size(), kMostPieces)));
    total_.fetch_add(bytes, std::memory_order_relaxed);
    return bytes;
  } catch (const std::system_error& error) {
    int none = 0;
    error_.compare_exchange_strong(none, error.code().value());
    throw;
  }
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
    const auto woken = changed_.wait_until(lock, std::min(slice, deadline.at()));
    if (!busy_) break;
    // Others may take each turn first, so the deadline counts however often this thread wakes.
    if (woken == std::cv_status::no_timeout && !deadline.expired()) continue;
    lock.unlock();
    while_waiting();
    if (deadline.expired()) return false;
    lock.lock();
  }
  busy_ = true;
  return true;
}

void FrameWriter::end_turn() noexcept {
  {
    std::lock_guard lock(mutex_);
    busy_ = false;
    try {
      copied_.insert(copied_.end(), posted_.begin(), posted_.end());
    } catch (const std::bad_alloc&) {
      stream_.shut_down();
    }
    posted_.clear();
    copied_waits_ = !copied_.empty();
  }
  changed_.notify_one();
}

bool FrameWriter::pending() {
  std::lock_guard lock(mutex_);
  return busy_ || copied_waits_;
}

FrameWriter::Outcome FrameWriter::write(std::span<iovec> pieces, Deadline deadline,
                                        const std::function<void()>& while_waiting) {
  if (!take_turn(deadline, while_waiting)) return Outcome::late;
  struct Turn {
    FrameWriter& writer;
    ~Turn() { writer.end_turn(); }
  } turn{*this};
  bool begun = false;
  try {
    return write_frame(pieces, deadline, while_waiting, begun);
  } catch (...) {
    // The peer would take the next frame for the rest of this one.
    if (begun) stream_.shut_down();
    throw;
  }
}

FrameWriter::Outcome FrameWriter::write_frame(std::span<iovec> pieces, Deadline deadline,
                                              const std::function<void()>& while_waiting,
                                              bool& begun) {
  pieces = without_first(pieces, 0);
  for (;;) {
    if (write_copied()) {
      for (size_t bytes = 1; bytes > 0 && !pieces.empty();) {
        // Shared memory may hold a part of the frame, also if the write throws.
        const bool before = std::exchange(begun, true);
        bytes = write_some(pieces);
        begun = before || bytes > 0;
        pieces = without_first(pieces, bytes);
      }
      if (pieces.empty()) return Outcome::sent;
    }
    if (deadline.expired()) {
      if (!begun || copy_rest(pieces)) return Outcome::late;
      torn_ = true;  // Before the reader sees the end of the stream.
      stream_.shut_down();
      return Outcome::torn;
    }
    stream_.wait_to_write(std::min(Deadline::Clock::now() + kWriteSlice, deadline.at()));
    while_waiting();
  }
}

// Returns false if the rest is too large.
bool FrameWriter::copy_rest(std::span<const iovec> pieces) {
  size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  if (bytes > kMostCopied) return false;
  copied_.reserve(bytes);
  for (const iovec& piece : pieces) {
    const auto* const data = static_cast<const std::byte*>(piece.iov_base);
    copied_.insert(copied_.end(), data, data + piece.iov_len);
  }
  return true;
}

void FrameWriter::post(std::span<const std::byte> frame) noexcept {
  bool mine = false;
  try {
    {
      std::lock_guard lock(mutex_);
      if (busy_) {
        posted_.insert(posted_.end(), frame.begin(), frame.end());
        return;
      }
      busy_ = mine = true;
    }
    copied_.insert(copied_.end(), frame.begin(), frame.end());
    write_copied();
  } catch (const std::system_error&) {
    // The reader finds the end of the stream.
  } catch (...) {
    stream_.shut_down();  // The peer's numbers are impossible, or a frame would be missing.
  }
  if (mine) end_turn();
}

}  // namespace trireme::net
