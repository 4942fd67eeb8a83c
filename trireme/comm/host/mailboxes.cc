#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/comm/host/mailboxes.h>
#include <trireme/comm/host/message_ring.h>
#include <trireme/comm/host/peer_memory.h>
#include <trireme/net/futex.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace trireme::comm {
namespace {

// Below this size two copies through the ring cost less than a system call and its answer.
constexpr int64_t kReadFrom = 16 << 10;
// The messages of a pair that may wait to be read. More of them go through the ring.
constexpr int kSlots = 64;
// The state of a slot. Whoever leaves kUnread first decides whether the message has been read.
constexpr uint32_t kUnread = 0, kRead = 1, kWithdrawn = 2;

}  // namespace

struct Mailboxes::Header {
  MessageForm form;
  int32_t tag;
  int32_t slot;      // The slot of a message that the receiver reads, or -1.
  uint64_t address;  // The place of its bytes in the sender's memory.
};

struct Mailboxes::Sending {
  at::Tensor tensor;
  Header header;
  int to;
  Deadline limit;      // The group's time-out.
  size_t written = 0;  // To the ring, with the header.
  bool over = false;

  size_t bytes_in_ring() const {
    return sizeof(Header) + (header.slot < 0 ? static_cast<size_t>(header.form.bytes) : 0);
  }
};

struct Mailboxes::Receiving {
  at::Tensor tensor;
  MessageForm form;
  int from, tag;
  Deadline limit;  // The group's time-out.
  bool over = false;
  MessageDifference difference;
};

struct Mailboxes::Letter {
  Header header;
  std::vector<std::byte> bytes;
};

struct Mailboxes::Incoming {
  Letter letter;
  size_t received = 0;  // Bytes of header and body.
  ReceivingPtr target;
  std::byte* body = nullptr;
};

struct Mailboxes::Ring {
  MessageRing bytes;
  alignas(64) std::array<std::atomic<uint32_t>, kSlots> slots;
};

// Lies before the rings.
struct Mailboxes::Shared {
  struct alignas(64) Bell {
    std::atomic<uint32_t> rung;
  };
  std::array<Bell, net::kMaxRanksOfHost> bells;
  std::array<MemoryProbe, net::kMaxRanksOfHost> probes;
  // [reader][sender]
  std::array<std::array<bool, net::kMaxRanksOfHost>, net::kMaxRanksOfHost> can_read;
};

Mailboxes::Mailboxes(std::shared_ptr<HostTeam> team, Milliseconds timeout, bool reads_peers)
    : team_(std::move(team)),
      timeout_(timeout),
      number_(std::make_unique<const uint64_t>(number_for_probes())),
      outgoing_(static_cast<size_t>(team_->size())),
      unread_(static_cast<size_t>(team_->size())) {
  const auto ranks = static_cast<size_t>(team_->size());
  for (size_t rank = 0; rank < ranks; ++rank) incoming_.push_back(std::make_unique<Incoming>());
  const size_t bytes = sizeof(Shared) + ranks * ranks * sizeof(Ring);
  memory_ = team_->allocate(bytes, bytes, "messages between ranks");
  find_readable_peers(reads_peers);
}
Mailboxes::~Mailboxes() {
  for (const auto& unread : unread_)
    for (const SendingPtr& each : unread) withdraw(*each);
}

void Mailboxes::find_readable_peers(bool reads_peers) {
  if (team_->size() == 1) return;
  const auto self = static_cast<size_t>(team_->rank());
  shared().probes[self] = probe_of_this_process(*number_);
  team_->barrier("messages between ranks");
  for (size_t other = 0; other < outgoing_.size(); ++other)
    shared().can_read[self][other] = reads_peers && can_read(shared().probes[other]);
  // From here on each rank sees what the others can do, and none looks for the number any more.
  team_->barrier("messages between ranks");
}

Mailboxes::Shared& Mailboxes::shared() const {
  static_assert(sizeof(Shared) % 64 == 0 && sizeof(Ring) % 64 == 0);
  return *reinterpret_cast<Shared*>(memory_->data());
}
Mailboxes::Ring& Mailboxes::ring(int from, int to) const {
  auto* const rings = reinterpret_cast<Ring*>(memory_->data() + sizeof(Shared));
  return rings[from * team_->size() + to];
}
void Mailboxes::ring_bell(int rank) {
  std::atomic<uint32_t>& bell = shared().bells[static_cast<size_t>(rank)].rung;
  bell.fetch_add(1, std::memory_order_acq_rel);
  net::futex_wake_all(bell);
}

// A slot whose last message has been read, or -1.
int Mailboxes::free_slot(int to) {
  const auto& unread = unread_[static_cast<size_t>(to)];
  if (unread.size() >= kSlots) return -1;
  for (int slot = 0;; ++slot)
    if (std::none_of(unread.begin(), unread.end(),
                     [&](const SendingPtr& each) { return each->header.slot == slot; }))
      return slot;
}

Mailboxes::SendingPtr Mailboxes::send(at::Tensor tensor, int to, int tag) {
  team_->throw_if_ended();
  const MessageForm form = form_of(tensor);
  const bool readable =
      shared().can_read[static_cast<size_t>(to)][static_cast<size_t>(team_->rank())];
  reap(to);
  const int slot = readable && form.bytes >= kReadFrom ? free_slot(to) : -1;
  const Header header{form, tag, slot, reinterpret_cast<uint64_t>(tensor.const_data_ptr())};
  auto sending =
      std::make_shared<Sending>(Sending{std::move(tensor), header, to, Deadline::after(timeout_)});
  if (slot >= 0) {
    ring(team_->rank(), to).slots[static_cast<size_t>(slot)].store(kUnread);
    unread_[static_cast<size_t>(to)].push_back(sending);
  }
  outgoing_[static_cast<size_t>(to)].push_back(sending);
  push(to);
  return sending;
}

Mailboxes::ReceivingPtr Mailboxes::receive(at::Tensor tensor, int from, int tag) {
  const MessageForm form = form_of(tensor);
  auto receiving = std::make_shared<Receiving>(
      Receiving{std::move(tensor), form, from, tag, Deadline::after(timeout_), false, {}});
  pull(from);
  auto& letters = letters_[{from, tag}];
  if (letters.empty()) {
    receives_.push_back(receiving);
  } else {
    const Letter letter = std::move(letters.front());
    letters.pop_front();
    hand_over(from, letter, *receiving);
  }
  return receiving;
}

bool Mailboxes::wait_for(const SendingPtr& sending, Milliseconds patience) {
  try {
    const Milliseconds wait = std::min(patience, sending->limit.remaining());
    if (wait_until([&] { return sending->over; }, Deadline::after(wait))) return true;
    if (sending->limit.expired())
      time_out(fmt::format("send: rank {} to take a message", sending->to));
  } catch (const Error&) {
    withdraw(*sending);
    throw;
  }
  return false;
}
bool Mailboxes::wait_for(const ReceivingPtr& receiving, Milliseconds patience) {
  const Milliseconds wait = std::min(patience, receiving->limit.remaining());
  if (wait_until([&] { return receiving->over; }, Deadline::after(wait))) {
    refuse_message(receiving->difference);
    return true;
  }
  if (!receiving->limit.expired()) return false;
  receives_.remove(receiving);
  time_out(fmt::format("recv: a message of rank {} (tag {})", receiving->from, receiving->tag));
}
void Mailboxes::wait(const SendingPtr& sending) {
  sending->limit = Deadline::after(timeout_);
  while (!wait_for(sending, timeout_)) continue;
}
void Mailboxes::wait(const ReceivingPtr& receiving) {
  receiving->limit = Deadline::after(timeout_);
  while (!wait_for(receiving, timeout_)) continue;
}

// From here on its receiver gets an error, because the tensor may change.
void Mailboxes::withdraw(const Sending& sending) {
  if (sending.over || sending.header.slot < 0) return;
  uint32_t unread = kUnread;
  ring(team_->rank(), sending.to)
      .slots[static_cast<size_t>(sending.header.slot)]
      .compare_exchange_strong(unread, kWithdrawn);
}

bool Mailboxes::progress() {
  bool moved = false;
  for (int other = 0; other < team_->size(); ++other) {
    moved = push(other) || moved;
    moved = reap(other) || moved;
    moved = pull(other) || moved;
  }
  return moved;
}

bool Mailboxes::push(int to) {
  bool moved = false;
  Ring& there = ring(team_->rank(), to);
  auto& outgoing = outgoing_[static_cast<size_t>(to)];
  while (!outgoing.empty()) {
    Sending& message = *outgoing.front();
    const size_t whole = message.bytes_in_ring();
    const bool in_header = message.written < sizeof(Header);
    const std::byte* const from =
        in_header ? reinterpret_cast<const std::byte*>(&message.header) + message.written
                  : static_cast<const std::byte*>(message.tensor.const_data_ptr()) +
                        (message.written - sizeof(Header));
    const size_t count =
        there.bytes.write(from, (in_header ? sizeof(Header) : whole) - message.written);
    if (count == 0) break;
    message.written += count;
    moved = true;
    if (message.written < whole) continue;
    message.over = message.header.slot < 0;
    outgoing.pop_front();
  }
  if (moved) ring_bell(to);
  return moved;
}

bool Mailboxes::reap(int to) {
  auto& unread = unread_[static_cast<size_t>(to)];
  if (unread.empty()) return false;
  Ring& there = ring(team_->rank(), to);
  return std::erase_if(unread, [&](const SendingPtr& each) {
           const auto slot = static_cast<size_t>(each->header.slot);
           return each->over = there.slots[slot].load(std::memory_order_acquire) == kRead;
         }) > 0;
}

bool Mailboxes::pull(int from) {
  bool moved = false;
  Ring& here = ring(from, team_->rank());
  for (;;) {
    Incoming& message = *incoming_[static_cast<size_t>(from)];
    const bool in_header = message.received < sizeof(Header);
    std::byte* const to =
        in_header ? reinterpret_cast<std::byte*>(&message.letter.header) + message.received
                  : message.body + (message.received - sizeof(Header));
    const size_t whole =
        in_header ? sizeof(Header)
                  : sizeof(Header) + static_cast<size_t>(message.letter.header.form.bytes);
    const size_t count = here.bytes.read(to, whole - message.received);
    if (count == 0) break;
    message.received += count;
    moved = true;
    if (message.received < whole) continue;
    const Header& header = message.letter.header;
    if (in_header && header.slot < 0 && header.form.bytes > 0)
      begin_body(from);
    else
      end_body(from);
  }
  if (moved) ring_bell(from);
  return moved;
}

// The body goes straight to the tensor of a receive that it fits.
void Mailboxes::begin_body(int from) {
  Incoming& message = *incoming_[static_cast<size_t>(from)];
  const Header& header = message.letter.header;
  message.target = take_receive(from, header.tag);
  if (message.target)
    message.target->difference = {header.form, message.target->form, from, header.tag};
  if (message.target && message.target->difference.empty()) {
    message.body = static_cast<std::byte*>(message.target->tensor.mutable_data_ptr());
  } else {
    message.letter.bytes.resize(static_cast<size_t>(header.form.bytes));
    message.body = message.letter.bytes.data();
  }
}

void Mailboxes::end_body(int from) {
  Incoming message = std::move(*incoming_[static_cast<size_t>(from)]);
  *incoming_[static_cast<size_t>(from)] = {};
  const Header& header = message.letter.header;
  if (message.target) {
    message.target->over = true;
  } else if (const ReceivingPtr target = take_receive(from, header.tag)) {
    hand_over(from, message.letter, *target);  // It may have come meanwhile.
  } else {
    letters_[{from, header.tag}].push_back(std::move(message.letter));
  }
}

Mailboxes::ReceivingPtr Mailboxes::take_receive(int from, int tag) {
  const auto found = std::find_if(
      receives_.begin(), receives_.end(),
      [&](const ReceivingPtr& each) { return each->from == from && each->tag == tag; });
  if (found == receives_.end()) return nullptr;
  ReceivingPtr receiving = *found;
  receives_.erase(found);
  return receiving;
}

void Mailboxes::hand_over(int from, const Letter& letter, Receiving& receiving) {
  const Header& header = letter.header;
  receiving.difference = {header.form, receiving.form, from, header.tag};
  void* const place = receiving.difference.empty() ? receiving.tensor.mutable_data_ptr() : nullptr;
  if (header.slot >= 0) {
    if (!read(from, header, place)) miss(from, header);
  } else if (place != nullptr && header.form.bytes > 0) {
    std::memcpy(place, letter.bytes.data(), letter.bytes.size());
  }
  receiving.over = true;
}

// Reads a message in its sender's memory, unless there is no place for it, and tells the sender.
// Returns false if the message is not there any more.
bool Mailboxes::read(int from, const Header& header, void* place) {
  auto& slot = ring(from, team_->rank()).slots[static_cast<size_t>(header.slot)];
  const bool is_there =
      place == nullptr || read_memory(shared().probes[static_cast<size_t>(from)], header.address,
                                      place, static_cast<size_t>(header.form.bytes));
  // A sender that has given up may have changed or freed the tensor meanwhile.
  team_->throw_if_ended();
  uint32_t state = kUnread;
  if (!is_there || !slot.compare_exchange_strong(state, kRead)) return false;
  ring_bell(from);
  return true;
}

void Mailboxes::miss(int from, const Header& header) {
  const auto& slot = ring(from, team_->rank()).slots[static_cast<size_t>(header.slot)];
  if (slot.load() == kWithdrawn)
    throw Error(ErrorCode::aborted, "comm",
                fmt::format("recv: rank {} gave up its message (tag {})", from, header.tag),
                "see that rank's output for the first error");
  wait_until([] { return false; }, Deadline::after(timeout_));  // Until its loss is known.
  time_out(fmt::format("recv: the memory of rank {}, which is gone", from));
}

// Reads messages for which nobody asks yet. Their senders may have to go on before anybody does,
// for example if two ranks first send to each other.
void Mailboxes::set_aside() {
  for (auto& [key, letters] : letters_) {
    for (Letter& letter : letters) {
      if (letter.header.slot < 0) continue;
      std::vector<std::byte> bytes(static_cast<size_t>(letter.header.form.bytes));
      if (!read(key.first, letter.header, bytes.data())) continue;  // A receive will say why.
      letter.bytes = std::move(bytes);
      letter.header.slot = -1;
    }
  }
}

template <typename Done>
bool Mailboxes::wait_until(Done done, Deadline deadline) {
  std::atomic<uint32_t>& bell = shared().bells[static_cast<size_t>(team_->rank())].rung;
  for (;;) {
    const uint32_t rung = bell.load(std::memory_order_acquire);
    if (done()) return true;
    if (progress()) continue;
    team_->throw_if_ended();
    if (deadline.expired()) return false;
    net::futex_wait(bell, rung);
    if (bell.load(std::memory_order_acquire) == rung) set_aside();  // There is time for it.
  }
}

void Mailboxes::time_out(const std::string& what) const {
  throw Error(ErrorCode::timeout, "comm",
              fmt::format("waited {} for {}", format_duration(timeout_), what),
              "check whether that rank is at the other end of it");
}

}  // namespace trireme::comm
