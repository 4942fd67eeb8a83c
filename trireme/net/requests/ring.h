// A stream of bytes in shared memory, from one process to another. One thread at a time writes,
// and one at a time reads.
//
// A side that has to wait says so in the ring and sleeps on an eventfd, the bell. The other side
// rings only if someone waits, so a ring in use needs no system call. The numbers in shared memory
// are checked, because the peer can change them at any time.
#pragma once
#include <sys/uio.h>
#include <trireme/base/descriptor.h>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::net {

// The part of a ring that lies in shared memory, in front of its bytes. Zeros are an empty ring.
struct RingState {
  alignas(64) std::atomic<uint64_t> written;  // The bytes written since the start.
  alignas(64) std::atomic<uint64_t> taken;    // The bytes read since the start.
  alignas(64) std::atomic<uint32_t> reader_waits;
  alignas(64) std::atomic<uint32_t> writer_waits;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "the ring lies in shared memory");

struct RingBells {
  Descriptor data, room;
  static RingBells make();  // Throws Error(io).
};

class Ring {
 public:
  // `bytes` is a power of two. The state and the bytes outlive the ring.
  Ring(RingState& state, std::byte* bytes, size_t capacity, RingBells bells);

  // For the writer: the bytes that fitted in. Throws Error(corrupt) if the state is impossible.
  size_t write(std::span<const iovec> pieces);
  bool has_room() const;
  // For the reader, in the same way.
  size_t read(std::span<const iovec> rooms);
  bool has_data() const;
  // The bytes that the reader has taken, as it says. Any thread.
  uint64_t taken_by_peer() const { return state_.taken.load(); }

  // Says that this side is going to sleep on its bell. Look again after the call: bytes or room
  // that came before it ring no bell.
  void reader_sleeps() { state_.reader_waits.store(1); }
  void writer_sleeps() { state_.writer_waits.store(1); }
  void reader_wakes() { state_.reader_waits.store(0, std::memory_order_relaxed); }
  void writer_wakes() { state_.writer_waits.store(0, std::memory_order_relaxed); }
  int data_bell() const { return bells_.data.get(); }
  int room_bell() const { return bells_.room.get(); }

 private:
  size_t filled(uint64_t written, uint64_t taken) const;

  RingState& state_;
  std::byte* const bytes_;
  const size_t capacity_;
  const RingBells bells_;
  // This side's own number; the peer cannot change it.
  std::atomic<uint64_t> written_{0}, taken_{0};
};

// Empties a bell on which this side slept.
void silence_bell(int bell);

}  // namespace trireme::net
