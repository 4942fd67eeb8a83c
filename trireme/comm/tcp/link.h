// One peer's stream of bytes, both ways, over a non-blocking socket: what is queued moves as far as
// the socket lets it, and what arrives goes straight to where it is wanted.
#pragma once
#include <trireme/base/descriptor.h>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::comm {

struct Outgoing {
  const std::byte* data = nullptr;
  size_t bytes = 0;
  size_t sent = 0;
  bool finished() const { return sent == bytes; }
};

// Bytes that are due: with a place of their own, or through a window that their user empties from
// the front.
class Incoming {
 public:
  Incoming(std::byte* place, size_t bytes) : place_(place), bytes_(bytes) {}
  static Incoming through_window(size_t bytes, size_t window);

  size_t bytes() const { return bytes_; }
  size_t received() const { return received_; }
  bool finished() const { return received_ == bytes_; }
  std::span<std::byte>
  room();  // Where the next bytes go. Empty: all have come, or the window is full.
  void arrived(size_t bytes) { received_ += bytes; }

  // Of a window: what lies in it, and how to take its first bytes out.
  std::span<const std::byte> content() const { return {window_.data(), received_ - taken_}; }
  bool full() const { return content().size() == window_.size(); }
  void take(size_t bytes);

 private:
  std::byte* place_;
  size_t bytes_;
  size_t received_ = 0;
  std::vector<std::byte> window_;
  size_t taken_ = 0;
};

class Link {
 public:
  Link() = default;  // To nobody.
  explicit Link(Descriptor socket) : socket_(std::move(socket)) {}

  // Queue; the pieces stay their owner's, who keeps them in place until they are finished.
  void send(Outgoing& piece) { out_.push_back(&piece); }
  void receive(Incoming& piece) { in_.push_back(&piece); }
  bool idle() const { return out_at_ == out_.size() && in_at_ == in_.size(); }
  bool owes() const { return out_at_ < out_.size(); }   // This side has bytes to send.
  bool expects() const { return in_at_ < in_.size(); }  // The peer has bytes to send.
  void forget();                                        // What is queued.

  // True if bytes moved. Throw std::system_error when the connection is broken or closed.
  bool write_some();
  bool read_some();

  int descriptor() const { return socket_.get(); }
  void drop();           // Both sides see it broken, whatever waits on it.
  short events() const;  // What poll() should wait for: 0 for nothing.
  // Before poll(): whether it may let many bytes that are due come together before it returns,
  // which saves most of the waking up.
  void be_patient(bool on);

 private:
  Descriptor socket_;
  std::vector<Outgoing*> out_;
  std::vector<Incoming*> in_;
  size_t out_at_ = 0, in_at_ = 0;  // The first that is not finished.
  int low_water_ = 1;              // So many bytes make poll() return.
};

}  // namespace trireme::comm
