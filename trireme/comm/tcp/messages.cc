#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <trireme/base/error.h>
#include <trireme/comm/tcp/messages.h>
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

namespace trireme::comm {
namespace {

// The interval at which a wait checks for lost workers from which it expects no message.
constexpr Milliseconds kMessageSlice{20};

}  // namespace

// One message in progress, seen from the thread that waits for it.
struct Messages::Delivery {
  Delivery(at::Tensor message, int other, int message_tag, Milliseconds timeout)
      : tensor(std::move(message)),
        peer(other),
        limit(Deadline::after(timeout)),
        header{static_cast<int64_t>(tensor.nbytes()), static_cast<int32_t>(tensor.scalar_type()),
               message_tag} {}
  std::byte* data() const { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }

  at::Tensor tensor;
  int peer;
  Deadline limit;  // The group's time-out, which begins anew with wait().
  Header header;
  Outgoing head, body;  // Only a send has them.
  bool done = false;
  MessageDifference
      difference;      // The difference between the message that came and the expected one.
  std::string broken;  // The reason why the connection can no longer carry it.
};

// A message that arrived before its receive.
struct Messages::Letter {
  Header header;
  std::vector<std::byte> body;
};

struct Messages::Lane {
  using DeliveryPtr = std::shared_ptr<Delivery>;
  Link link;
  std::deque<DeliveryPtr> sends;    // In the order of the stream.
  std::list<DeliveryPtr> receives;  // Receives for which nothing has arrived yet.
  std::deque<Letter> aside;
  // The message that is arriving: first its header, then its body.
  Header header;
  std::optional<Incoming> head, body;
  DeliveryPtr target;  // The receive for the body. If empty, the body is set aside.
  Letter letter;
  std::string broken;

  bool advance();
  void advance_sends();
  bool advance_arrival();
  void begin_body();
  void end_body();
  DeliveryPtr take_receive(int32_t tag);
  static void hand_over(Delivery& receive, const Letter& letter);
  void break_off(const std::string& why);
};

// True if bytes moved or something was finished.
bool Messages::Lane::advance() {
  try {
    const bool wrote = link.write_some();
    advance_sends();
    bool any = wrote;
    while (advance_arrival()) any = true;
    return any;
  } catch (const std::system_error& error) {
    break_off(error.code().message());
    return true;
  }
}

void Messages::Lane::advance_sends() {
  while (!sends.empty() && sends.front()->head.finished() && sends.front()->body.finished()) {
    sends.front()->done = true;
    sends.pop_front();
  }
}

bool Messages::Lane::advance_arrival() {
  if (!head) {
    if (receives.empty()) return false;
    head.emplace(reinterpret_cast<std::byte*>(&header), sizeof header);
    link.receive(*head);
  }
  const bool any = link.read_some();
  if (!head->finished()) return any;
  if (!body) begin_body();
  if (!body->finished()) return any;
  end_body();
  return true;
}

void Messages::Lane::begin_body() {
  target = take_receive(header.tag);
  if (target)
    target->difference = {header.form(), target->header.form(), target->peer, header.tag};
  const bool fits = target && target->difference.empty();
  if (!fits) letter = {header, std::vector<std::byte>(static_cast<size_t>(header.bytes))};
  body.emplace(fits ? target->data() : letter.body.data(), static_cast<size_t>(header.bytes));
  if (header.bytes > 0) link.receive(*body);
}

void Messages::Lane::end_body() {
  if (!target) target = take_receive(header.tag);  // The receive may have come meanwhile.
  if (!target)
    aside.push_back(std::move(letter));
  else if (!letter.body.empty() && target->difference.empty())
    hand_over(*target, letter);
  else
    target->done = true;
  target.reset();
  letter = {};
  head.reset();
  body.reset();
}

std::shared_ptr<Messages::Delivery> Messages::Lane::take_receive(int32_t tag) {
  const auto found = std::find_if(receives.begin(), receives.end(), [&](const DeliveryPtr& each) {
    return each->header.tag == tag;
  });
  if (found == receives.end()) return nullptr;
  const DeliveryPtr receive = *found;
  receives.erase(found);
  return receive;
}

void Messages::Lane::hand_over(Delivery& receive, const Letter& letter) {
  receive.difference = {letter.header.form(), receive.header.form(), receive.peer,
                        letter.header.tag};
  if (receive.difference.empty() && !letter.body.empty())
    std::memcpy(receive.data(), letter.body.data(), letter.body.size());
  receive.done = true;
}

void Messages::Lane::break_off(const std::string& why) {
  broken = why;
  link.forget();
  if (target) receives.push_back(std::move(target));
  for (const DeliveryPtr& each : sends) each->broken = why;
  for (const DeliveryPtr& each : receives) each->broken = why;
  sends.clear();
  receives.clear();
}

struct Messages::Mailroom {
  Mailroom(std::vector<Descriptor> connections, std::shared_ptr<const WaitLimits> group_limits)
      : limits(std::move(group_limits)), bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    for (Descriptor& connection : connections)
      lanes.emplace_back().link = Link(std::move(connection));
  }
  void ring() { (void)!::write(bell.get(), &kOne, sizeof kOne); }
  void start() {  // Call it with the mutex held.
    if (!thread.joinable()) thread = std::thread([this] { run(); });
    ring();
  }
  void run();
  bool wait(Delivery& delivery, const char* operation, const std::string& what,
            Milliseconds patience);
  // Before a wait that has all the time there is.
  void renew(Delivery& delivery) {
    const std::lock_guard lock(mutex);
    delivery.limit = Deadline::after(limits->timeout());
  }

  static constexpr uint64_t kOne = 1;
  const std::shared_ptr<const WaitLimits> limits;
  const Descriptor bell;
  std::mutex mutex;  // Guards the lanes and all deliveries.
  std::condition_variable changed;
  std::deque<Lane> lanes;  // By rank.
  bool ended = false;
  std::thread thread;
};

void Messages::Mailroom::run() {
  std::unique_lock lock(mutex);
  std::vector<pollfd> waits(lanes.size() + 1);
  while (!ended) {
    bool any = false;
    for (Lane& lane : lanes)
      if (lane.broken.empty()) any = lane.advance() || any;
    if (any) {
      changed.notify_all();
      continue;
    }
    for (size_t i = 0; i < lanes.size(); ++i) {
      const short events = lanes[i].link.events();
      if (events & POLLIN) lanes[i].link.be_patient(true);
      waits[i] = {events ? lanes[i].link.descriptor() : -1, events, 0};
    }
    waits.back() = {bell.get(), POLLIN, 0};
    lock.unlock();
    ::poll(waits.data(), waits.size(), -1);
    uint64_t rings;
    (void)!::read(bell.get(), &rings, sizeof rings);
    lock.lock();
  }
}

// Returns false if the operation is not over after `patience`.
bool Messages::Mailroom::wait(Delivery& delivery, const char* operation, const std::string& what,
                              Milliseconds patience) {
  const Deadline deadline = delivery.limit, until = Deadline::after(patience);
  std::unique_lock lock(mutex);
  const auto over = [&] { return delivery.done || ended || !delivery.broken.empty(); };
  while (!changed.wait_for(
      lock, std::min({kMessageSlice, deadline.remaining(), until.remaining()}), over)) {
    limits->throw_if_lost();
    if (!deadline.expired()) {
      if (until.expired()) return false;
      continue;
    }
    lanes[static_cast<size_t>(delivery.peer)].receives.remove_if(
        [&](const auto& each) { return each.get() == &delivery; });
    limits->time_out(operation, what);
  }
  refuse_message(delivery.difference);
  if (delivery.done) return true;
  const std::string why = delivery.broken;
  lock.unlock();
  if (why.empty())
    throw Error(ErrorCode::aborted, "comm",
                fmt::format("{}: the group ended meanwhile", operation));
  limits->explain(operation, fmt::format("the connection to {} is gone ({})",
                                         limits->name_of(delivery.peer), why));
}

class Messages::DeliveryWork : public Work {
 public:
  DeliveryWork(std::shared_ptr<Mailroom> mailroom, std::shared_ptr<Delivery> delivery,
               const char* operation, std::string what)
      : mailroom_(std::move(mailroom)),
        delivery_(std::move(delivery)),
        operation_(operation),
        what_(std::move(what)) {}
  void wait() override {
    mailroom_->renew(*delivery_);
    mailroom_->wait(*delivery_, operation_, what_, kLongestWait);
  }
  bool wait_for(Milliseconds patience) override {
    return mailroom_->wait(*delivery_, operation_, what_, patience);
  }

 private:
  std::shared_ptr<Mailroom> mailroom_;
  std::shared_ptr<Delivery> delivery_;
  const char* operation_;
  std::string what_;
};

Messages::Messages(std::vector<Descriptor> connections, std::shared_ptr<const WaitLimits> limits)
    : mailroom_(std::make_shared<Mailroom>(std::move(connections), std::move(limits))) {}

Messages::~Messages() {
  {
    const std::lock_guard lock(mailroom_->mutex);
    mailroom_->ended = true;
    mailroom_->ring();
    mailroom_->changed.notify_all();
  }
  if (mailroom_->thread.joinable()) mailroom_->thread.join();
  mailroom_->lanes.clear();  // Closes the connections even if a Work still exists.
}

WorkPtr Messages::send(at::Tensor tensor, int to, int tag) {
  mailroom_->limits->throw_if_lost();
  auto delivery =
      std::make_shared<Delivery>(std::move(tensor), to, tag, mailroom_->limits->timeout());
  delivery->head = {reinterpret_cast<const std::byte*>(&delivery->header),
                    sizeof delivery->header};
  delivery->body = {delivery->data(), static_cast<size_t>(delivery->header.bytes)};
  const std::lock_guard lock(mailroom_->mutex);
  Lane& lane = mailroom_->lanes[static_cast<size_t>(to)];
  delivery->broken = lane.broken;
  if (lane.broken.empty()) {
    lane.sends.push_back(delivery);
    lane.link.send(delivery->head);
    if (delivery->body.bytes > 0) lane.link.send(delivery->body);
    mailroom_->start();
  }
  return std::make_unique<DeliveryWork>(
      mailroom_, std::move(delivery), "send",
      fmt::format("rank {} to take a message (tag {})", to, tag));
}

void Messages::drop(int peer) {
  const std::lock_guard lock(mailroom_->mutex);
  mailroom_->lanes[static_cast<size_t>(peer)].link.drop();
}

WorkPtr Messages::receive(at::Tensor tensor, int from, int tag) {
  mailroom_->limits->throw_if_lost();
  auto delivery =
      std::make_shared<Delivery>(std::move(tensor), from, tag, mailroom_->limits->timeout());
  const std::lock_guard lock(mailroom_->mutex);
  Lane& lane = mailroom_->lanes[static_cast<size_t>(from)];
  const auto letter = std::find_if(lane.aside.begin(), lane.aside.end(),
                                   [&](const Letter& each) { return each.header.tag == tag; });
  if (letter != lane.aside.end()) {
    Lane::hand_over(*delivery, *letter);
    lane.aside.erase(letter);
  } else if (lane.broken.empty()) {
    lane.receives.push_back(delivery);
    mailroom_->start();
  } else {
    delivery->broken = lane.broken;
  }
  return std::make_unique<DeliveryWork>(mailroom_, std::move(delivery), "recv",
                                        fmt::format("a message of rank {} (tag {})", from, tag));
}

}  // namespace trireme::comm
