// The stream of bytes to and from one peer, over a non-blocking socket. Queued pieces move as far
// as the socket allows, and arriving bytes go directly to their place.
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

// Bytes that are expected. They go to a place of their own, or through a window that the user
// empties from the front.
class Incoming {
 public:
  Incoming(std::byte* place, size_t bytes) : place_(place), bytes_(bytes) {}
  static Incoming through_window(size_t bytes, size_t window);

  size_t bytes() const { return bytes_; }
  size_t received() const { return received_; }
  bool finished() const { return received_ == bytes_; }
  // The room for the next bytes. It is empty if all bytes have arrived, or if the window is full.
  std::span<std::byte> room();
  void arrived(size_t bytes) { received_ += bytes; }

  // For a window: the bytes in it, and the removal of the first of them.
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
  Link() = default;  // A link to no peer.
  explicit Link(Descriptor socket) : socket_(std::move(socket)) {}

  // These queue a piece. The caller keeps the piece, and must not move it until it is finished.
  void send(Outgoing& piece) { out_.push_back(&piece); }
  void receive(Incoming& piece) { in_.push_back(&piece); }
  bool idle() const { return out_at_ == out_.size() && in_at_ == in_.size(); }
  bool owes() const { return out_at_ < out_.size(); }   // This side has bytes to send.
  bool expects() const { return in_at_ < in_.size(); }  // The peer has bytes to send.
  void forget();                                        // Drops the queued pieces.

  // True if bytes moved. Both throw std::system_error if the connection is broken or closed.
  bool write_some();
  bool read_some();

  int descriptor() const { return socket_.get(); }
  void drop();           // Breaks the connection for both sides; all waits on it end.
  short events() const;  // The events for which poll() should wait, or 0.
  // Call it before poll(). If `on`, poll() may wait until many of the expected bytes have arrived,
  // which saves most wake-ups.
  void be_patient(bool on);

 private:
  Descriptor socket_;
  std::vector<Outgoing*> out_;
  std::vector<Incoming*> in_;
  size_t out_at_ = 0, in_at_ = 0;  // The first pieces that are not finished.
  int low_water_ = 1;              // The number of bytes at which poll() returns.
};

}  // namespace trireme::comm
