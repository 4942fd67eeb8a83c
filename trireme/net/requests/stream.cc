#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <trireme/base/error.h>
#include <trireme/net/requests/stream.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <ctime>
#include <new>
#include <system_error>

namespace trireme::net {
namespace {

[[noreturn]] void throw_ended(int number) {
  throw std::system_error(number, std::system_category());
}

// The number of bytes that a call on a socket moved, or 0 if it would have had to wait.
size_t moved_bytes(ssize_t result) {
  if (result >= 0) return static_cast<size_t>(result);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  throw_ended(errno);
}

timespec time_until(Deadline::Clock::time_point until) {
  using std::chrono::nanoseconds;
  const auto left =
      std::clamp<nanoseconds>(until - Deadline::Clock::now(), nanoseconds(0), Milliseconds(60000));
  return {static_cast<time_t>(left.count() / 1'000'000'000),
          static_cast<long>(left.count() % 1'000'000'000)};
}

Rings rings_in(SharedMemory memory, RingBells to_server, RingBells to_client) {
  constexpr size_t kStates = 2 * sizeof(RingState);
  const size_t capacity = std::bit_floor((memory.bytes() - kStates) / 2);
  auto* const states = reinterpret_cast<RingState*>(memory.data());
  std::byte* const bytes = memory.data() + kStates;
  Rings rings;
  rings.to_server = std::make_unique<Ring>(states[0], bytes, capacity, std::move(to_server));
  rings.to_client =
      std::make_unique<Ring>(states[1], bytes + capacity, capacity, std::move(to_client));
  rings.memory = std::move(memory);
  return rings;
}

}  // namespace

Rings Rings::create(size_t bytes, Descriptors& descriptors) {
  SharedMemory memory = SharedMemory::create(
      2 * (sizeof(RingState) + std::bit_ceil(std::max<size_t>(bytes, 4096))), Sharing::processes,
      {"a request channel", "more memory for the job, or fewer processes on this host"});
  memory.reserve(0, memory.bytes());
  memory.seal_size();
  memory.prefault(0, memory.bytes());
  RingBells to_server = RingBells::make(), to_client = RingBells::make();
  descriptors = {
      memory.descriptor(),
      {to_server.data.get(), to_server.room.get(), to_client.data.get(), to_client.room.get()}};
  return rings_in(std::move(memory), std::move(to_server), std::move(to_client));
}

Rings Rings::open(Descriptor descriptor, RingBells to_server, RingBells to_client) {
  SharedMemory memory = SharedMemory::open(std::move(descriptor), "a request channel");
  if (memory.bytes() < 2 * (sizeof(RingState) + 4096))
    throw Error(ErrorCode::corrupt, "net", "the shared memory of a request channel is too small",
                "the same version of Trireme on both sides");
  memory.prefault(0, memory.bytes());
  memory.close_descriptor();
  return rings_in(std::move(memory), std::move(to_server), std::move(to_client));
}

Stream::Stream(Descriptor socket, Side side, std::optional<Rings> rings)
    : socket_(std::move(socket)), rings_(std::move(rings)) {
  if (!rings_) return;
  in_ = side == Side::client ? rings_->to_client.get() : rings_->to_server.get();
  out_ = side == Side::client ? rings_->to_server.get() : rings_->to_client.get();
}

void Stream::throw_if_ended() const {
  if (ended_) throw_ended(ECONNRESET);
}

size_t Stream::read_some(std::span<iovec> rooms) {
  if (in_) {
    if (const size_t bytes = in_->read(rooms); bytes > 0) return bytes;
    // The peer's last bytes come before its end.
    if (ended_) {
      if (const size_t bytes = in_->read(rooms); bytes > 0) return bytes;
      throw_if_ended();
    }
    return 0;
  }
  msghdr message{};
  message.msg_iov = rooms.data();
  message.msg_iovlen = rooms.size();
  const ssize_t result = ::recvmsg(socket(), &message, MSG_DONTWAIT);
  if (result == 0) throw_ended(ECONNRESET);
  return moved_bytes(result);
}

size_t Stream::write_some(std::span<iovec> pieces) {
  if (out_) {
    throw_if_ended();
    return out_->write(pieces);
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  return moved_bytes(::sendmsg(socket(), &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

bool Stream::unread() const {
  if (in_) return in_->has_data() || ended_;
  int bytes = 0;
  return ::ioctl(socket(), FIONREAD, &bytes) == 0 && bytes > 0;
}

bool Stream::peer_ended() const {
  pollfd entry{socket(), POLLRDHUP, 0};
  return ended_ || (::poll(&entry, 1, 0) > 0 && entry.revents != 0);
}

uint64_t Stream::on_the_way(uint64_t written) const {
  if (out_) return written - out_->taken_by_peer();
  int bytes = 0;
  return ::ioctl(socket(), SIOCOUTQ, &bytes) == 0 ? static_cast<uint64_t>(bytes) : 0;
}

void Stream::look_for_end() {
  if (!in_) return;
  char byte;
  const ssize_t result = ::recv(socket(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (result >= 0 || (errno != EAGAIN && errno != EINTR)) ended_ = true;
}

void Stream::wait(Ring* ring, bool to_read, Deadline::Clock::time_point until) {
  const timespec patience = time_until(until);
  const auto events = static_cast<short>(to_read ? POLLIN : POLLOUT);
  if (!ring) {
    pollfd entry{socket(), events, 0};
    ::ppoll(&entry, 1, &patience, nullptr);
    return;
  }
  to_read ? ring->reader_sleeps() : ring->writer_sleeps();
  if (!(to_read ? ring->has_data() : ring->has_room()) && !ended_) {
    std::array<pollfd, 2> entries{
        {{to_read ? ring->data_bell() : ring->room_bell(), POLLIN, 0}, {socket(), POLLIN, 0}}};
    ::ppoll(entries.data(), entries.size(), &patience, nullptr);
    if (entries[0].revents != 0) silence_bell(entries[0].fd);
    if (entries[1].revents != 0) look_for_end();
  }
  to_read ? ring->reader_wakes() : ring->writer_wakes();
}

void Stream::wait_to_read(Deadline::Clock::time_point until) { wait(in_, true, until); }
void Stream::wait_to_write(Deadline::Clock::time_point until) { wait(out_, false, until); }

void Stream::shut_down() {
  if (in_) ended_ = true;
  ::shutdown(socket(), SHUT_RDWR);
}

}  // namespace trireme::net
