#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/comm/host/mailboxes.h>
#include <trireme/net/futex.h>
#include <algorithm>
#include <atomic>
#include <cstring>

namespace trireme::comm {
namespace {

constexpr size_t kRingBytes = 32 << 10;

struct Header {
  int64_t tag;
  MessageForm form;
};

}  // namespace

// A ring with one writer and one reader. Positions only grow; a byte lies at
// position % kRingBytes.
struct Mailboxes::Ring {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) std::byte bytes[kRingBytes];
};

namespace {

constexpr size_t kBellStride = 64;
size_t bells_bytes(int size) { return kBellStride * static_cast<size_t>(size); }

// Copies to or from a ring. The end of the ring may lie inside the range.
template <typename Copy>
void in_ring(uint64_t position, size_t count, Copy copy) {
  const size_t at = position % kRingBytes, first = std::min(count, kRingBytes - at);
  copy(at, size_t{0}, first);
  if (count > first) copy(size_t{0}, first, count - first);
}

}  // namespace

Mailboxes::Mailboxes(std::shared_ptr<HostTeam> team, Milliseconds timeout)
    : team_(std::move(team)),
      timeout_(timeout),
      outgoing_(team_->size()),
      posted_(team_->size(), 0),
      sent_(team_->size(), 0),
      incoming_(team_->size()) {
  const size_t pairs = static_cast<size_t>(team_->size()) * static_cast<size_t>(team_->size());
  const size_t bytes = bells_bytes(team_->size()) + pairs * sizeof(Ring);
  memory_ = team_->allocate(bytes, bytes, "messages between ranks");
}
Mailboxes::~Mailboxes() = default;

Mailboxes::Ring& Mailboxes::ring(int from, int to) const {
  auto* const rings = reinterpret_cast<Ring*>(memory_->data() + bells_bytes(team_->size()));
  return rings[from * team_->size() + to];
}
std::atomic<uint32_t>& Mailboxes::bell(int rank) const {
  return *reinterpret_cast<std::atomic<uint32_t>*>(memory_->data() +
                                                   kBellStride * static_cast<size_t>(rank));
}

uint64_t Mailboxes::post(int to, int tag, const void* data, const MessageForm& form) {
  const Header header{tag, form};
  Outgoing message{std::vector<std::byte>(sizeof header), static_cast<const std::byte*>(data),
                   static_cast<size_t>(form.bytes)};
  std::memcpy(message.header.data(), &header, sizeof header);
  outgoing_[to].push_back(std::move(message));
  push(to);
  return ++posted_[to];
}

bool Mailboxes::sent_within(int to, uint64_t number, Milliseconds patience) {
  return wait_until([&] { return sent_[to] >= number; }, Deadline::after(patience));
}
void Mailboxes::wait_sent(int to, uint64_t number) {
  if (!sent_within(to, number, timeout_))
    time_out(fmt::format("send: rank {} to take a message", to));
}

std::optional<Message> Mailboxes::take_within(int from, int tag, Milliseconds patience) {
  auto& box = arrived_[{from, tag}];
  if (!wait_until([&] { return !box.empty(); }, Deadline::after(patience))) return std::nullopt;
  Message message = std::move(box.front());
  box.pop_front();
  return message;
}
Message Mailboxes::take(int from, int tag) {
  if (auto message = take_within(from, tag, timeout_)) return std::move(*message);
  time_out(fmt::format("recv: a message of rank {} (tag {})", from, tag));
}

bool Mailboxes::progress() {
  bool moved = false;
  for (int other = 0; other < team_->size(); ++other) moved = push(other) || pull(other) || moved;
  return moved;
}

bool Mailboxes::push(int to) {
  bool moved = false;
  Ring& there = ring(team_->rank(), to);
  while (!outgoing_[to].empty()) {
    Outgoing& message = outgoing_[to].front();
    const size_t whole = sizeof(Header) + message.bytes;
    const uint64_t position = there.written.load(std::memory_order_relaxed);
    const size_t room = kRingBytes - (position - there.read.load(std::memory_order_acquire));
    if (room == 0) break;
    const bool in_header = message.written < sizeof(Header);
    const std::byte* const from = in_header ? message.header.data() + message.written
                                            : message.data + (message.written - sizeof(Header));
    const size_t count = std::min(room, (in_header ? sizeof(Header) : whole) - message.written);
    in_ring(position, count, [&](size_t at, size_t skip, size_t n) {
      std::memcpy(there.bytes + at, from + skip, n);
    });
    there.written.store(position + count, std::memory_order_release);
    message.written += count;
    moved = true;
    if (message.written < whole) continue;
    outgoing_[to].pop_front();
    ++sent_[to];
  }
  if (moved) {
    bell(to).fetch_add(1, std::memory_order_acq_rel);
    net::futex_wake_all(bell(to));
  }
  return moved;
}

bool Mailboxes::pull(int from) {
  bool moved = false;
  Ring& here = ring(from, team_->rank());
  for (;;) {
    const uint64_t position = here.read.load(std::memory_order_relaxed);
    const size_t there = here.written.load(std::memory_order_acquire) - position;
    if (there == 0) break;
    Incoming& message = incoming_[from];
    message.header.resize(sizeof(Header));
    const bool in_header = message.received < sizeof(Header);
    std::byte* const to = in_header ? message.header.data() + message.received
                                    : message.data.data() + (message.received - sizeof(Header));
    const size_t count =
        std::min(there, (in_header ? sizeof(Header) : sizeof(Header) + message.data.size()) -
                            message.received);
    in_ring(position, count,
            [&](size_t at, size_t skip, size_t n) { std::memcpy(to + skip, here.bytes + at, n); });
    here.read.store(position + count, std::memory_order_release);
    message.received += count;
    moved = true;
    Header header;
    std::memcpy(&header, message.header.data(), sizeof header);
    if (in_header && message.received == sizeof header)
      message.data.resize(static_cast<size_t>(header.form.bytes));
    if (message.received < sizeof header || message.received < sizeof header + message.data.size())
      continue;
    arrived_[{from, static_cast<int>(header.tag)}].push_back(
        {header.form, std::move(message.data)});
    message = {};
  }
  if (moved) {
    bell(from).fetch_add(1, std::memory_order_acq_rel);
    net::futex_wake_all(bell(from));
  }
  return moved;
}

template <typename Done>
bool Mailboxes::wait_until(Done done, Deadline deadline) {
  for (;;) {
    const uint32_t rung = bell(team_->rank()).load(std::memory_order_acquire);
    if (done()) return true;
    if (progress()) continue;
    team_->throw_if_ended();
    if (deadline.expired()) return false;
    net::futex_wait(bell(team_->rank()), rung);
  }
}

void Mailboxes::time_out(const std::string& what) const {
  throw Error(ErrorCode::timeout, "comm",
              fmt::format("waited {} for {}", format_duration(timeout_), what),
              "check whether that rank is at the other end of it");
}

}  // namespace trireme::comm
