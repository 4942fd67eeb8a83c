// The two directions of bytes between a client and a server, over TCP or through shared memory.
// Nothing here waits, except for the two calls that say so.
//
// The TCP connection stays open while bytes go through shared memory. Nothing travels on it then,
// but it ends with the peer's process, however that ends.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/net/requests/ring.h>
#include <trireme/net/shared_memory.h>
#include <atomic>
#include <memory>
#include <optional>

namespace trireme::net {

// Two rings and the memory in which they lie.
struct Rings {
  SharedMemory memory;
  std::unique_ptr<Ring> to_server, to_client;
  // Both throw Error(io). `bytes` for each direction is rounded up to a power of two.
  struct Descriptors {
    int memory;
    int bells[4];
  };
  static Rings create(size_t bytes, Descriptors& descriptors);
  static Rings open(Descriptor memory, RingBells to_server, RingBells to_client);
};

class Stream {
 public:
  enum class Side { client, server };
  // The socket must not block.
  Stream(Descriptor socket, Side side, std::optional<Rings> rings);

  bool in_memory() const { return rings_.has_value(); }
  // Both return the number of bytes that moved, and 0 if none could. They throw std::system_error
  // when the connection has ended. One thread at a time reads, and one at a time writes.
  size_t read_some(std::span<iovec> rooms);
  size_t write_some(std::span<iovec> pieces);
  // Whether bytes wait to be read, or (from shared memory) the end. Any thread.
  bool unread() const;
  // Whether the peer has closed the connection, or its process has ended, whatever lies unread.
  bool peer_ended() const;
  // The bytes that lie between the two ends: this end wrote them, and the peer's host (in shared
  // memory: the peer) has not taken them. Any thread.
  uint64_t on_the_way(uint64_t written) const;

  // Wait until bytes can be read or written, the connection ended, or `until`.
  void wait_to_read(Deadline::Clock::time_point until);
  void wait_to_write(Deadline::Clock::time_point until);

  // For a reader that waits by other means (epoll): says that it sleeps on bell(). Bytes may be
  // there already.
  void reader_sleeps() { in_->reader_sleeps(); }
  void reader_wakes() { in_->reader_wakes(); }
  int bell() const { return in_->data_bell(); }
  int socket() const { return socket_.get(); }
  // Shared memory only: looks whether the peer's process has ended.
  void look_for_end();

  // Ends the connection for both sides. All waits end. Any thread.
  void shut_down();

 private:
  void wait(Ring* ring, bool to_read, Deadline::Clock::time_point until);
  void throw_if_ended() const;

  const Descriptor socket_;
  std::optional<Rings> rings_;
  Ring *in_ = nullptr, *out_ = nullptr;
  std::atomic<bool> ended_{false};
};

}  // namespace trireme::net
