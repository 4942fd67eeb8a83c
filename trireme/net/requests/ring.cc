#include <fmt/format.h>
#include <sys/eventfd.h>
#include <trireme/base/error.h>
#include <trireme/net/requests/ring.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace trireme::net {
namespace {

Descriptor make_bell() {
  Descriptor bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell)
    throw Error(ErrorCode::io, "net", fmt::format("an eventfd: {}", std::strerror(errno)),
                "ulimit -n");
  return bell;
}

void ring_bell(std::atomic<uint32_t>& waits, int bell) {
  // The order of this load after the store of the number, and of the sleeper's two steps, is
  // sequentially consistent: either the sleeper sees the bytes, or this side sees the sleeper.
  if (waits.load() == 0 || waits.exchange(0) == 0) return;
  const uint64_t one = 1;
  (void)!::write(bell, &one, sizeof one);  // A full bell is ringing already.
}

// Large messages are passed on in parts, so that the two sides copy at the same time, and the
// reader finds the bytes in a cache.
constexpr size_t kRingPart = 64 << 10;

// Calls `copy(place in the ring, memory, bytes)` for each contiguous part, up to `most` bytes.
template <typename Copy>
size_t in_parts(std::span<const iovec> pieces, uint64_t from, size_t capacity, size_t most,
                Copy copy) {
  size_t done = 0;
  for (const iovec& piece : pieces) {
    size_t moved = 0;
    while (moved < piece.iov_len && done < most) {
      const size_t at = static_cast<size_t>(from + done) & (capacity - 1);
      const size_t part = std::min({piece.iov_len - moved, most - done, capacity - at, kRingPart});
      copy(at, static_cast<std::byte*>(piece.iov_base) + moved, part);
      moved += part;
      done += part;
    }
    if (done == most) break;
  }
  return done;
}

}  // namespace

RingBells RingBells::make() {
  RingBells bells;
  bells.data = make_bell();
  bells.room = make_bell();
  return bells;
}

void silence_bell(int bell) {
  uint64_t rung = 0;
  (void)!::read(bell, &rung, sizeof rung);
}

Ring::Ring(RingState& state, std::byte* bytes, size_t capacity, RingBells bells)
    : state_(state), bytes_(bytes), capacity_(capacity), bells_(std::move(bells)) {}

size_t Ring::filled(uint64_t written, uint64_t taken) const {
  if (written - taken > capacity_)
    throw Error(ErrorCode::corrupt, "net", "a ring in shared memory with impossible numbers",
                "the same version of Trireme on both sides");
  return static_cast<size_t>(written - taken);
}

size_t Ring::write(std::span<const iovec> pieces) {
  uint64_t written = written_.load(std::memory_order_relaxed);
  const size_t room = capacity_ - filled(written, state_.taken.load(std::memory_order_acquire));
  size_t since_told = 0;
  const auto tell = [&] {
    written_.store(written, std::memory_order_relaxed);
    state_.written.store(written);
    ring_bell(state_.reader_waits, data_bell());
    since_told = 0;
  };
  const size_t done = in_parts(pieces, written, capacity_, room,
                               [&](size_t at, const std::byte* from, size_t part) {
                                 std::memcpy(bytes_ + at, from, part);
                                 written += part;
                                 if ((since_told += part) >= kRingPart) tell();
                               });
  if (since_told > 0) tell();
  return done;
}

size_t Ring::read(std::span<const iovec> rooms) {
  uint64_t taken = taken_.load(std::memory_order_relaxed);
  const size_t there = filled(state_.written.load(std::memory_order_acquire), taken);
  size_t since_told = 0;
  const auto tell = [&] {
    taken_.store(taken, std::memory_order_relaxed);
    state_.taken.store(taken);
    ring_bell(state_.writer_waits, room_bell());
    since_told = 0;
  };
  const size_t done =
      in_parts(rooms, taken, capacity_, there, [&](size_t at, std::byte* to, size_t part) {
        std::memcpy(to, bytes_ + at, part);
        taken += part;
        if ((since_told += part) >= kRingPart) tell();
      });
  if (since_told > 0) tell();
  return done;
}

// Only the other side's number comes from shared memory: if the peer changes the one of this side,
// nothing follows. In an impossible state something is there: the call that follows finds it.
bool Ring::has_data() const {
  return state_.written.load() != taken_.load(std::memory_order_relaxed);
}
bool Ring::has_room() const {
  return written_.load(std::memory_order_relaxed) - state_.taken.load() != capacity_;
}

}  // namespace trireme::net
