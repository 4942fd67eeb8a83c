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

  enum class Outcome {
    sent,
    late,  // The deadline passed. The rest of a frame that has begun was copied.
    torn,  // The deadline passed in a frame with a rest over kMostCopied: the stream was ended.
  };
  // The rest of a frame that is copied at its deadline, so that the channel stays usable.
  static constexpr size_t kMostCopied = 64 << 20;

  // Waits for its turn, then until all pieces are written. `while_waiting` is called every few
  // milliseconds of a wait; it throws to give up. At the deadline the rest of a frame that has
  // begun is copied and goes out later, so the stream stays in order and the pieces are the
  // caller's again. Throws std::system_error when the stream has ended. No frame follows a part of
  // one: any exception in the middle of a frame ends the stream.
  Outcome write(std::span<iovec> pieces, Deadline deadline,
                const std::function<void()>& while_waiting);
  // Never waits: what does not go out now is copied and goes out before the next frame. Throws
  // nothing: the reader finds the end of the stream, and error() has the reason.
  void post(std::span<const std::byte> frame) noexcept;
  // Sends what was copied, as far as the stream takes it now.
  void flush() { post({}); }
  // Whether a frame waits to go out.
  bool pending();
  // The first error of the stream that a write met, or 0. Any thread.
  int error() const { return error_; }
  bool torn() const { return torn_; }  // A frame was torn. Any thread.
  // The bytes written so far. Any thread.
  uint64_t total() const { return total_.load(std::memory_order_relaxed); }

 private:
  bool take_turn(Deadline deadline, const std::function<void()>& while_waiting);
  void end_turn() noexcept;
  Outcome write_frame(std::span<iovec> pieces, Deadline deadline,
                      const std::function<void()>& while_waiting, bool& begun);
  bool copy_rest(std::span<const iovec> pieces);
  size_t write_some(std::span<iovec> pieces);
  bool write_copied();

  Stream& stream_;
  std::condition_variable changed_;
  std::mutex mutex_;  // Guards the next three.
  bool busy_ = false, copied_waits_ = false;
  std::vector<std::byte> posted_;  // Frames posted while another thread had its turn.
  // Bytes that go out first. Only the thread that has its turn uses them.
  std::vector<std::byte> copied_;
  size_t copied_sent_ = 0;
  std::atomic<uint64_t> total_{0};
  std::atomic<int> error_{0};
  std::atomic<bool> torn_{false};
};

}  // namespace trireme::net
