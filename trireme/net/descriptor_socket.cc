#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/net/control.h>
#include <trireme/net/descriptor_socket.h>
#include <trireme/net/handshake.h>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace trireme::net {
namespace {

constexpr Milliseconds kLook{10};  // Between two looks at who was lost.

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::io, "net", fmt::format("{}: {}", what, std::strerror(errno)),
              "comm.backend=gloo, which needs no shared memory");
}

std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  // The leading zero selects the abstract name space.
  std::memcpy(address.sun_path + 1, name.data(), length);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

Descriptor open_socket() {
  const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) fail("a Unix socket");
  return Descriptor(made);
}

bool same_user(int connected) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(connected, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == geteuid();
}

void wait_for(std::span<pollfd> entries, Deadline deadline, const ThrowIfLost& throw_if_lost,
              const char* what) {
  for (;;) {
    const Milliseconds patience =
        throw_if_lost ? std::min(kLook, deadline.remaining()) : deadline.remaining();
    const int ready =
        poll(entries.data(), entries.size(), Deadline::after(patience).remaining_as_int());
    if (ready > 0) return;
    if (throw_if_lost) throw_if_lost();
    if (ready < 0 && errno != EINTR) fail("poll");
    if (deadline.expired())
      throw Error(ErrorCode::timeout, "net",
                  fmt::format("waited {} for {}", format_duration(deadline.allowed()), what),
                  "check that the other processes of this host run");
  }
}

[[noreturn]] void partner_gone() {
  throw Error(ErrorCode::peer_lost, "net",
              "a process of this host closed its connection for shared memory");
}

// A message of one byte that has room for a descriptor.
struct WithDescriptor {
  char byte = 'd';
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  WithDescriptor() {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  WithDescriptor(const WithDescriptor&) = delete;  // A copy would hold pointers into the original.
};

constexpr size_t kMaxStrangers = 64;

// A name has the form "ADDRESS/SECRET".
std::string address_in(const std::string& name) { return name.substr(0, name.find('/')); }

Mac proof_of(const std::string& name) {
  const auto bytes = [](const std::string& text) {
    return std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  const size_t slash = std::min(name.find('/'), name.size());
  return mac_of(bytes(name.substr(slash)), bytes("descriptor socket " + address_in(name)));
}

constexpr const char* kPartner = "another process of this host to share its memory";

}  // namespace

DescriptorSocket DescriptorSocket::connect(const std::string& name, Deadline deadline,
                                           ThrowIfLost throw_if_lost) {
  DescriptorSocket made(open_socket(), std::move(throw_if_lost));
  const auto [address, length] = address_of(address_in(name));
  while (::connect(made.socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == ECONNREFUSED) partner_gone();
    if ((errno != EAGAIN && errno != EINTR) || deadline.expired())
      fail("connecting to the process that shares memory");
    if (made.throw_if_lost_) made.throw_if_lost_();
    // The queue is full for the moment, and poll cannot tell when it has room.
    poll(nullptr, 0, 1);
  }
  if (!same_user(made.socket_.get()))
    throw Error(ErrorCode::io, "net",
                "the process that offers shared memory belongs to another user",
                "one user for all workers of a host");
  const Mac proof = proof_of(name);
  made.wait(POLLOUT, deadline);
  if (::send(made.socket_.get(), proof.data(), proof.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(proof.size()))
    partner_gone();
  return made;
}

void DescriptorSocket::wait(short events, Deadline deadline) const {
  pollfd entry{socket_.get(), events, 0};
  wait_for({&entry, 1}, deadline, throw_if_lost_, kPartner);
}

void DescriptorSocket::send_number(int64_t number, Deadline deadline) {
  wait(POLLOUT, deadline);
  if (::send(socket_.get(), &number, sizeof number, MSG_NOSIGNAL) != sizeof number) partner_gone();
}

int64_t DescriptorSocket::receive_number(Deadline deadline) {
  wait(POLLIN, deadline);
  int64_t number = 0;
  if (::recv(socket_.get(), &number, sizeof number, 0) != sizeof number) partner_gone();
  return number;
}

void DescriptorSocket::send_descriptor(int descriptor, Deadline deadline) {
  wait(POLLOUT, deadline);
  WithDescriptor sent;
  cmsghdr* const header = CMSG_FIRSTHDR(&sent.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  if (sendmsg(socket_.get(), &sent.message, MSG_NOSIGNAL) != 1) partner_gone();
}

Descriptor DescriptorSocket::receive_descriptor(Deadline deadline) {
  wait(POLLIN, deadline);
  WithDescriptor received;
  if (recvmsg(socket_.get(), &received.message, MSG_CMSG_CLOEXEC) != 1) partner_gone();
  const cmsghdr* const header = CMSG_FIRSTHDR(&received.message);
  if (!header || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int)))
    throw Error(ErrorCode::corrupt, "net",
                "a process of this host did not send the descriptor that was due");
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return Descriptor(descriptor);
}

DescriptorListener::DescriptorListener(ThrowIfLost throw_if_lost)
    : socket_(open_socket()),
      name_("trireme-" + make_token() + "/" + make_token()),
      throw_if_lost_(std::move(throw_if_lost)) {
  const auto [address, length] = address_of(address_in(name_));
  if (bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(socket_.get(), 64) != 0)
    fail("listening on a Unix socket");
}

void DescriptorListener::take_waiting() {
  for (;;) {
    Descriptor accepted(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!accepted) return;
    if (!same_user(accepted.get())) continue;
    if (strangers_.size() == kMaxStrangers) strangers_.pop_front();
    strangers_.push_back(std::move(accepted));
  }
}

// Returns the first connection that has proven the name, and drops those with a wrong proof.
std::optional<DescriptorSocket> DescriptorListener::take_proven() {
  const Mac expected = proof_of(name_);
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    std::array<uint8_t, sizeof(Mac) + 1> received;
    const ssize_t length = ::recv(stranger->get(), received.data(), received.size(), 0);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) {
      ++stranger;
      continue;
    }
    Descriptor taken = std::move(*stranger);
    stranger = strangers_.erase(stranger);
    if (length == static_cast<ssize_t>(sizeof(Mac)) &&
        same(received.data(), expected.data(), sizeof(Mac)))
      return DescriptorSocket(std::move(taken), throw_if_lost_);
  }
  return std::nullopt;
}

std::optional<DescriptorSocket> DescriptorListener::accept_now() {
  take_waiting();
  return take_proven();
}

DescriptorSocket DescriptorListener::accept(Deadline deadline) {
  for (;;) {
    if (auto proven = accept_now()) return std::move(*proven);
    std::vector<pollfd> entries{{socket_.get(), POLLIN, 0}};
    for (const Descriptor& stranger : strangers_) entries.push_back({stranger.get(), POLLIN, 0});
    wait_for(entries, deadline, throw_if_lost_, kPartner);
  }
}

}  // namespace trireme::net
