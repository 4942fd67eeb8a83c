// Writes whole frames to a stream, one after the other, from any thread.
#pragma once
#include <trireme/net/requests/stream.h>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

namespace trireme::net {

class FrameWriter {
 public:
  explicit FrameWriter(Stream& stream) : stream_(stream) {}

  // Waits for its turn, then until all pieces are written. `while_waiting` is called every few
  // milliseconds of a wait; it throws to give up. Returns false at the deadline. A frame that has
  // begun is then copied and goes out later, so the stream stays in order and the pieces are the
  // caller's again. Throws std::system_error when the stream has ended.
  bool write(std::span<iovec> pieces, Deadline deadline,
             const std::function<void()>& while_waiting);
  // Never waits: what does not go out now is copied and goes out before the next frame.
  void post(std::span<const std::byte> frame);
  // Sends what was copied, as far as the stream takes it now.
  void flush() { post({}); }
  // The bytes written so far. Any thread.
  uint64_t total() const { return total_.load(std::memory_order_relaxed); }

 private:
  bool take_turn(Deadline deadline, const std::function<void()>& while_waiting);
  void end_turn();
  size_t write_some(std::span<iovec> pieces);
  bool write_copied();

  Stream& stream_;
  std::mutex mutex_;  // Guards `busy_` and `posted_`.
  std::condition_variable changed_;
  bool busy_ = false;
  std::vector<std::byte> posted_;  // Frames posted while another thread had its turn.
  // Of the thread that has its turn: bytes that go out first.
  std::vector<std::byte> copied_;
  size_t copied_sent_ = 0;
  std::atomic<uint64_t> total_{0};
};

}  // namespace trireme::net
