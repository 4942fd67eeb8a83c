// Reads frames from a stream as far as their bytes have come, and continues later where it
// stopped. Payloads go directly to the memory that the receiver names.
//
// Over TCP the reader asks the kernel for up to 8 KB when a frame begins, since a system call
// costs more than the copy of the payload's first bytes. The rest of a payload goes straight to
// its place. From shared memory everything does.
#pragma once
#include <trireme/net/requests/frame.h>
#include <trireme/net/requests/stream.h>
#include <array>
#include <functional>

namespace trireme::net {

// The places of a payload. `owner` is released when the memory is no longer written to.
struct Placement {
  Places places;
  std::shared_ptr<void> owner = nullptr;
};

struct ReceivedFrame {
  FramePrefix prefix;
  Head head;
  Placement placement;
  // The payload was dropped: nobody waits for it, or `problem` tells why.
  bool discarded = false;
  std::exception_ptr problem;
};

class FrameReader {
 public:
  enum class Progress {
    frame,  // A whole frame has arrived: take().
    waits,  // No more bytes are there.
    more,   // There may be more bytes, but others should have a turn.
  };
  // Sets `placement` of a frame whose head has come, or `discarded`. An exception becomes the
  // frame's `problem`.
  using Place = std::function<void(ReceivedFrame&)>;

  explicit FrameReader(RequestLimits limits) : limits_(limits) {}

  // Throws Error(corrupt) if the bytes are no frames, and std::system_error when the stream ends.
  Progress advance(Stream& stream, const Place& place);
  ReceivedFrame take();
  // Whether the payload of this request's answer is being read now.
  bool is_placing(uint64_t id) const;
  // The rest of the current payload is read and dropped.
  void discard_rest();
  // Whether a frame has begun and is not complete.
  bool within_frame() const { return section_ != Section::prefix || have_ > 0; }
  // Whether bytes of a next frame were read already, so that the stream does not announce them.
  bool holds_bytes() const { return begin_ < end_; }
  // The bytes read so far. Any thread.
  uint64_t total() const { return total_.load(std::memory_order_relaxed); }

 private:
  enum class Section { prefix, front, payload, done };
  static constexpr size_t kBuffer = 8192;

  size_t fill(Stream& stream, std::byte* to, size_t bytes);
  size_t read_payload(Stream& stream);
  void step(const Place& place);
  void begin_payload(const Place& place);

  const RequestLimits limits_;
  Section section_ = Section::prefix;
  ReceivedFrame frame_;
  std::vector<std::byte> front_;                 // Header and notes.
  size_t due_ = sizeof(FramePrefix), have_ = 0;  // The bytes of this section.
  size_t tensor_ = 0, offset_ = 0;               // The place of the next byte of the payload.
  std::vector<std::byte> scrap_;                 // Memory for payloads that are dropped.
  std::array<std::byte, kBuffer> buffer_;
  size_t begin_ = 0, end_ = 0;  // The bytes in the buffer that are not used yet.
  std::atomic<uint64_t> total_{0};
};

}  // namespace trireme::net
