#include <fmt/format.h>
#include <sched.h>
#include <trireme/base/units.h>
#include <trireme/net/futex.h>
#include <trireme/net/requests/opening.h>
#include <trireme/net/requests/request_client.h>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

namespace trireme::net {

using Clock = Deadline::Clock;
constexpr Milliseconds kFlushPeriod{5};
constexpr const char* kTorn = "the deadline of a request passed in the middle of its bytes";

// A request without an answer. Guarded by the client's mutex.
struct PendingReply::Call {
  uint64_t id = 0;
  std::string name;
  ChoosePlaces choose;
  bool done = false;
  bool waits = false;  // Its thread waits for `changed`.
  std::exception_ptr failure;
  Reply reply;
  std::condition_variable changed;  // It is done, or its thread should read.
};

// One thread at a time reads the connection: a waiting caller, or the keeper while no caller
// waits. It reads under the mutex and waits without it, so a caller that takes its memory back
// only needs the mutex.
struct PendingReply::Impl {
  Impl(std::unique_ptr<Channel> opened, const ChannelOptions& channel_options);
  void stop();

  std::unique_ptr<Call> start(const Message& request, ChoosePlaces choose, Deadline deadline,
                              std::string_view name);
  Reply wait(Call& call, Deadline deadline);
  void abandon(Call& call);
  void wake_keeper() { keeper_wakes_.notify_one(); }  // It reads if no caller waits.
  bool is_lost();

 private:
  using Lock = std::unique_lock<std::mutex>;
  std::string describe(const Call& call) const;
  Error timed_out(const Call& call, Deadline deadline, std::string_view doing) const;
  Error lost() const;
  void send(Call& call, const Message& request, Deadline deadline);
  bool drain(const Call* own = nullptr);
  void place(ReceivedFrame& frame);
  void complete(ReceivedFrame frame);
  void lose(const std::string& reason);
  void await_bytes(Lock& lock, Clock::time_point& spin_until, Clock::time_point until);
  void hand_over_reading();
  void keep();

 public:
  const std::unique_ptr<Channel> channel;

 private:
  const ChannelOptions options_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Call*> calls_;
  uint64_t next_id_ = 1;
  int waiting_ = 0;       // The threads in wait().
  bool reading_ = false;  // A thread reads or waits for bytes.
  bool stopping_ = false;
  std::optional<std::string> lost_because_;
  std::condition_variable keeper_wakes_;
  const FrameReader::Place place_ = [this](ReceivedFrame& frame) { place(frame); };
  std::thread keeper_;
};

PendingReply::Impl::Impl(std::unique_ptr<Channel> opened, const ChannelOptions& channel_options)
    : channel(std::move(opened)), options_(channel_options), keeper_([this] { keep(); }) {}

void PendingReply::Impl::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    lose("this process closed it");
  }
  keeper_wakes_.notify_all();
  keeper_.join();
}

std::string PendingReply::Impl::describe(const Call& call) const {
  return fmt::format("{} (request {}) to {}", call.name, call.id, channel->peer.name);
}

Error PendingReply::Impl::timed_out(const Call& call, Deadline deadline,
                                    std::string_view doing) const {
  return Error(ErrorCode::timeout, "net",
               fmt::format("{}: waited {} for the server to {}", describe(call),
                           format_duration(deadline.allowed()), doing),
               "a longer deadline, or look at what the server does");
}

Error PendingReply::Impl::lost() const {
  return Error(
      ErrorCode::peer_lost, "net",
      fmt::format("the request channel to {} has ended: {}", channel->peer.name, *lost_because_),
      "a new RequestClient once the server runs again");
}

std::unique_ptr<PendingReply::Call> PendingReply::Impl::start(const Message& request,
                                                              ChoosePlaces choose,
                                                              Deadline deadline,
                                                              std::string_view name) {
  auto call = std::make_unique<Call>();
  call->name = name;
  call->choose = std::move(choose);
  {
    std::lock_guard lock(mutex_);
    call->id = next_id_++;
    check_message([&] { return describe(*call); }, request, channel->peer.limits);
    if (lost_because_) throw lost();
    calls_.emplace(call->id, call.get());
  }
  try {
    send(*call, request, deadline);
  } catch (...) {
    abandon(*call);
    throw;
  }
  return call;
}

// While the server does not read, this end does, so that two ends that both write cannot wait for
// each other.
void PendingReply::Impl::send(Call& call, const Message& request, Deadline deadline) {
  const auto while_waiting = [this] {
    std::lock_guard lock(mutex_);
    if (!reading_) drain();
    if (lost_because_) throw lost();
  };
  std::vector<std::byte> front = encode_front(FrameKind::request, call.id, request);
  FrameWriter::Outcome outcome;
  try {
    outcome = channel->send(std::move(front), request, deadline, while_waiting);
  } catch (const std::exception& error) {
    std::lock_guard lock(mutex_);
    // The server's last answers come before its end.
    channel->stream.shut_down();
    while (drain()) {
    }
    lose(error.what());
    throw lost();
  }
  if (outcome == FrameWriter::Outcome::sent) return;
  {
    std::lock_guard lock(mutex_);
    if (outcome == FrameWriter::Outcome::torn)
      lose(kTorn);
    else
      keeper_wakes_.notify_one();  // It sends the rest of the frame.
  }
  throw timed_out(call, deadline, "take it");
}

// Reads what is there, under the mutex: until `own` is done, or for a turn, so that other calls
// get the mutex and deadlines count. Returns true if there may be more.
bool PendingReply::Impl::drain(const Call* own) {
  constexpr uint64_t kMostOfADrain = 1 << 20;
  if (lost_because_) return false;
  const uint64_t before = channel->reader.total();
  try {
    for (;;) {
      const auto progress = channel->reader.advance(channel->stream, place_);
      if (progress == FrameReader::Progress::waits) return false;
      if (progress == FrameReader::Progress::more) return true;
      complete(channel->reader.take());
      if ((own && own->done) || channel->reader.total() - before > kMostOfADrain) return true;
    }
  } catch (const std::system_error& error) {
    // A write may have met the reason first.
    if (channel->writer.torn()) lose(kTorn);
    const int first = channel->writer.error();
    lose("the server closed it, or its process ended (" +
         (first ? std::system_category().message(first) : error.code().message()) + ")");
  } catch (const std::exception& error) {
    lose(error.what());
  }
  return true;
}

void PendingReply::Impl::place(ReceivedFrame& frame) {
  const auto found = calls_.find(frame.prefix.id);
  if (found == calls_.end() || frame.prefix.kind != FrameKind::reply) {
    frame.discarded = true;
    return;
  }
  const Call& call = *found->second;
  if (call.choose) frame.placement.places = call.choose(frame.head);
  check_places([&] { return "the reply to " + describe(call); }, frame.head,
               frame.placement.places);
}

void PendingReply::Impl::complete(ReceivedFrame frame) {
  if (frame.prefix.kind == FrameKind::alive) return;
  if (frame.prefix.kind != FrameKind::reply && frame.prefix.kind != FrameKind::failure)
    throw Error(ErrorCode::corrupt, "net", "a request or its end from a server");
  const auto found = calls_.find(frame.prefix.id);
  if (found == calls_.end()) return;  // Nobody waits for the answer.
  Call& call = *found->second;
  calls_.erase(found);
  if (frame.prefix.kind == FrameKind::failure)
    call.failure = error_of_failure(frame.prefix, frame.head, describe(call));
  else
    call.failure = frame.problem;
  call.reply = std::move(frame.head);
  call.done = true;
  if (call.waits) call.changed.notify_one();
}

void PendingReply::Impl::lose(const std::string& reason) {
  if (lost_because_) return;
  lost_because_ = reason;
  channel->stream.shut_down();
  for (const auto& [id, call] : calls_) {
    call->done = true;
    call->failure = std::make_exception_ptr(lost());
    call->changed.notify_one();
  }
  calls_.clear();
}

// The caller of this function reads. Looks again for a moment before it sleeps.
void PendingReply::Impl::await_bytes(Lock& lock, Clock::time_point& spin_until,
                                     Clock::time_point until) {
  lock.unlock();
  if (Clock::now() < spin_until) {
    for (int i = 0; channel->stream.in_memory() && i < 64 && !channel->stream.unread(); ++i)
      pause_core();
    // The server may need this core to answer.
    if (!channel->stream.in_memory() || !channel->stream.unread()) sched_yield();
  } else {
    channel->stream.wait_to_read(until);
    spin_until = Clock::now() + options_.spin;
  }
  lock.lock();
}

// Wakes a caller that waits, so that it reads. Without one the keeper does it at its next tick.
void PendingReply::Impl::hand_over_reading() {
  if (waiting_ == 0) return;
  for (const auto& [id, call] : calls_)
    if (call->waits) return call->changed.notify_one();
}

bool PendingReply::Impl::is_lost() {
  std::lock_guard lock(mutex_);
  return lost_because_.has_value();
}

Reply PendingReply::Impl::wait(Call& call, Deadline deadline) {
  Lock lock(mutex_);
  ++waiting_;
  bool reads = false;
  auto spin_until = Clock::now() + options_.spin;
  while (!call.done && !deadline.expired()) {
    if (!reads && reading_) {
      call.waits = true;
      call.changed.wait_until(lock, deadline.at());
      call.waits = false;
      continue;
    }
    reads = reading_ = true;
    if (!drain(&call) && !call.done) await_bytes(lock, spin_until, deadline.at());
    if (call.done) break;
    lock.unlock();  // Others start calls meanwhile.
    lock.lock();
  }
  --waiting_;
  if (reads) reading_ = false;
  if (!reading_) hand_over_reading();
  if (!call.done) {
    lock.unlock();
    abandon(call);
    throw timed_out(call, deadline, "answer");
  }
  if (call.failure) std::rethrow_exception(call.failure);
  return std::move(call.reply);
}

void PendingReply::Impl::abandon(Call& call) {
  {
    std::lock_guard lock(mutex_);
    if (calls_.erase(call.id) == 0) return;  // It is answered or lost.
    if (channel->reader.is_placing(call.id)) channel->reader.discard_rest();
  }
  channel->writer.post(encode_bare(FrameKind::cancel, call.id));
}

// Sends signs of life and finds a silent server. While no caller waits, it reads the replies that
// are due, and the rest of one that nobody waits for: a thread of the server is held by it.
void PendingReply::Impl::keep() {
  Lock lock(mutex_);
  while (!stopping_ && !lost_because_) {
    auto next = Clock::now() + channel->tick_period();
    while (!reading_ && drain()) {
      lock.unlock();  // Others start calls meanwhile.
      lock.lock();
    }
    if (stopping_ || lost_because_) break;
    // The rest of a frame goes out as soon as there is room.
    if (channel->writer.pending()) next = std::min(next, Clock::now() + kFlushPeriod);
    const bool due = !calls_.empty() || channel->reader.within_frame();
    if (!reading_ && waiting_ == 0 && due) {
      reading_ = true;
      lock.unlock();
      channel->stream.wait_to_read(next);
      lock.lock();
      reading_ = false;
      drain();
      if (waiting_ > 0) hand_over_reading();
    } else {
      keeper_wakes_.wait_until(lock, next);
    }
    if (Clock::now() < next) continue;
    lock.unlock();
    const auto reason = channel->tick(Clock::now());
    lock.lock();
    if (reason) lose(*reason);
  }
}

PendingReply::PendingReply(std::shared_ptr<Impl> impl, std::unique_ptr<Call> call)
    : impl_(std::move(impl)), call_(std::move(call)) {}
PendingReply::PendingReply(PendingReply&&) noexcept = default;
PendingReply& PendingReply::operator=(PendingReply&& other) noexcept {
  std::swap(impl_, other.impl_);
  std::swap(call_, other.call_);
  return *this;
}
PendingReply::~PendingReply() {
  if (call_) impl_->abandon(*call_);
}
Reply PendingReply::wait(Deadline deadline) {
  const std::unique_ptr<Call> call = std::move(call_);
  if (!call)
    throw Error(ErrorCode::internal, "net", "PendingReply::wait() was called twice",
                "one wait() for each start()");
  return impl_->wait(*call, deadline);
}

RequestClient::RequestClient(const Endpoint& server, const std::string& token, Deadline deadline,
                             ChannelOptions options)
    : impl_(std::make_shared<PendingReply::Impl>(open_as_client(server, token, options, deadline),
                                                 options)) {}

RequestClient::~RequestClient() { impl_->stop(); }

Reply RequestClient::call(const Message& request, const Places& places, Deadline deadline,
                          std::string_view name) {
  return call(request, into(places), deadline, name);
}

Reply RequestClient::call(const Message& request, ChoosePlaces choose, Deadline deadline,
                          std::string_view name) {
  const auto call = impl_->start(request, std::move(choose), deadline, name);
  return impl_->wait(*call, deadline);
}

PendingReply RequestClient::start(const Message& request, ChoosePlaces choose, Deadline deadline,
                                  std::string_view name) {
  PendingReply pending(impl_, impl_->start(request, std::move(choose), deadline, name));
  impl_->wake_keeper();
  return pending;
}

bool RequestClient::is_lost() const { return impl_->is_lost(); }

RequestPath RequestClient::path() const {
  return impl_->channel->stream.in_memory() ? RequestPath::shm : RequestPath::tcp;
}
const std::string& RequestClient::server() const { return impl_->channel->peer.name; }

}  // namespace trireme::net
