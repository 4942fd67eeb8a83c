#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <trireme/comm/tcp/link.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace trireme::comm {
namespace {

constexpr size_t kPieces = 16;  // The pieces of one system call.
// The bytes for which a patient wait waits: well below the size of the kernel's buffers.
constexpr size_t kTogether = 64 << 10;

// The number of bytes that a call on a socket moved; 0 if the call would have had to wait.
size_t moved(ssize_t result) {
  if (result >= 0) return static_cast<size_t>(result);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  throw std::system_error(errno, std::system_category());
}

}  // namespace

Incoming Incoming::through_window(size_t bytes, size_t window) {
  Incoming incoming(nullptr, bytes);
  incoming.window_.resize(std::min(bytes, window));
  return incoming;
}

std::span<std::byte> Incoming::room() {
  const size_t missing = bytes_ - received_;
  if (place_) return {place_ + received_, missing};
  const size_t held = received_ - taken_;
  return {window_.data() + held, std::min(missing, window_.size() - held)};
}

void Incoming::take(size_t bytes) {
  const size_t left = received_ - taken_ - bytes;
  if (left > 0) std::memmove(window_.data(), window_.data() + bytes, left);
  taken_ += bytes;
}

void Link::forget() {
  out_.clear();
  in_.clear();
  out_at_ = in_at_ = 0;
}

bool Link::write_some() {
  std::array<iovec, kPieces> pieces;
  size_t count = 0;
  for (size_t i = out_at_; i < out_.size() && count < kPieces; ++i) {
    const Outgoing& piece = *out_[i];
    pieces[count++] = {const_cast<std::byte*>(piece.data) + piece.sent, piece.bytes - piece.sent};
  }
  if (count == 0) return false;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  size_t bytes = moved(::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT));
  const bool any = bytes > 0;
  while (out_at_ < out_.size()) {
    Outgoing& piece = *out_[out_at_];
    const size_t part = std::min(bytes, piece.bytes - piece.sent);
    piece.sent += part;
    bytes -= part;
    if (!piece.finished()) return any;
    ++out_at_;
  }
  out_.clear();
  out_at_ = 0;
  return any;
}

bool Link::read_some() {
  std::array<iovec, kPieces> rooms;
  size_t count = 0;
  for (size_t i = in_at_; i < in_.size() && count < kPieces; ++i) {
    const auto room = in_[i]->room();
    if (room.empty()) break;
    rooms[count++] = {room.data(), room.size()};
    // The rest of this piece comes before the next one.
    if (room.size() < in_[i]->bytes() - in_[i]->received()) break;
  }
  if (count == 0) return false;
  msghdr message{};
  message.msg_iov = rooms.data();
  message.msg_iovlen = count;
  const ssize_t result = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  if (result == 0) throw std::system_error(ECONNRESET, std::system_category(), "closed");
  size_t bytes = moved(result);
  const bool any = bytes > 0;
  while (in_at_ < in_.size()) {
    Incoming& piece = *in_[in_at_];
    const size_t part = std::min(bytes, piece.room().size());
    piece.arrived(part);
    bytes -= part;
    if (!piece.finished()) return any;
    ++in_at_;
  }
  in_.clear();
  in_at_ = 0;
  return any;
}

void Link::be_patient(bool on) {
  size_t due = 0;
  for (size_t i = in_at_; on && i < in_.size() && due < kTogether; ++i) {
    const size_t room = in_[i]->room().size();
    due += room;
    if (room < in_[i]->bytes() - in_[i]->received()) break;
  }
  const int low_water = due < kTogether ? 1 : static_cast<int>(kTogether);
  if (low_water == low_water_) return;
  low_water_ = low_water;
  // A kernel without this option wakes up more often.
  (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof low_water);
}

void Link::drop() {
  if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
}

short Link::events() const {
  const bool room = in_at_ < in_.size() && !in_[in_at_]->room().empty();
  return static_cast<short>((owes() ? POLLOUT : 0) | (room ? POLLIN : 0));
}

}  // namespace trireme::comm
