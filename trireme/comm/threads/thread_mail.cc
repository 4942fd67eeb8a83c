#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/comm/threads/thread_mail.h>
#include <algorithm>
#include <cstring>

namespace trireme::comm {
namespace {

using State = ThreadMail::Parcel::State;

// The interval at which a wait checks whether the group has ended.
constexpr Milliseconds kMailSlice{10};

ThreadMail::ParcelPtr parcel_of(at::Tensor tensor, int from, int to, int tag, bool receives,
                                Milliseconds timeout) {
  const MessageForm form = form_of(tensor);
  return std::make_shared<ThreadMail::Parcel>(ThreadMail::Parcel{.tensor = std::move(tensor),
                                                                 .form = form,
                                                                 .from = from,
                                                                 .to = to,
                                                                 .tag = tag,
                                                                 .receives = receives,
                                                                 .limit = Deadline::after(timeout),
                                                                 .bytes = {},
                                                                 .difference = {}});
}

ThreadMail::ParcelPtr first_of(std::deque<ThreadMail::ParcelPtr>& parcels) {
  ThreadMail::ParcelPtr first = parcels.front();
  parcels.pop_front();
  return first;
}

}  // namespace

// Copies without the lock: other ranks' messages go on.
void ThreadMail::hand_over(std::unique_lock<std::mutex>& lock, Parcel& sent, Parcel& received) {
  changed_.wait(lock, [&] { return sent.state != State::is_set_aside; });
  const bool aside = sent.state == State::aside;
  sent.state = received.state = State::is_copied;
  received.difference = {sent.form, received.form, sent.from, sent.tag};
  lock.unlock();
  if (received.difference.empty() && sent.form.bytes > 0)
    std::memcpy(received.tensor.mutable_data_ptr(),
                aside ? sent.bytes.data() : sent.tensor.const_data_ptr(),
                static_cast<size_t>(sent.form.bytes));
  lock.lock();
  sent.state = received.state = State::over;
  changed_.notify_all();
}

ThreadMail::ParcelPtr ThreadMail::send(at::Tensor tensor, int from, int to, int tag) {
  throw_if_ended_();
  ParcelPtr parcel = parcel_of(std::move(tensor), from, to, tag, /*receives=*/false, timeout_);
  std::unique_lock lock(mutex_);
  Box& box = boxes_[{from, to, tag}];
  if (box.receives.empty())
    box.sends.push_back(parcel);
  else
    hand_over(lock, *parcel, *first_of(box.receives));
  return parcel;
}

ThreadMail::ParcelPtr ThreadMail::receive(at::Tensor tensor, int from, int to, int tag) {
  ParcelPtr parcel = parcel_of(std::move(tensor), from, to, tag, /*receives=*/true, timeout_);
  std::unique_lock lock(mutex_);
  Box& box = boxes_[{from, to, tag}];
  if (box.sends.empty())
    box.receives.push_back(parcel);
  else
    hand_over(lock, *first_of(box.sends), *parcel);
  return parcel;
}

void ThreadMail::finish_send(const ParcelPtr& parcel) {
  std::unique_lock lock(mutex_);
  if (parcel->state == State::waits) {
    parcel->state = State::is_set_aside;
    lock.unlock();
    const auto* const bytes = static_cast<const std::byte*>(parcel->tensor.const_data_ptr());
    parcel->bytes.assign(bytes, bytes + parcel->form.bytes);
    lock.lock();
    parcel->state = State::aside;
    changed_.notify_all();
    return;
  }
  // The receiver is at it.
  changed_.wait(lock, [&] { return parcel->state != State::is_copied; });
}

// Returns false at the deadline. If the group has ended, no sender finds the receive any more.
bool ThreadMail::wait_until(std::unique_lock<std::mutex>& lock, const ParcelPtr& parcel,
                            Deadline deadline) {
  const auto over = [&] { return parcel->state == State::over || parcel->state == State::aside; };
  for (;;) {
    changed_.wait_for(lock, std::min(kMailSlice, deadline.remaining()), over);
    // A copy that has begun ends soon.
    changed_.wait(lock, [&] { return parcel->state != State::is_copied; });
    if (over()) return true;
    try {
      throw_if_ended_();
    } catch (const Error&) {
      take_back(parcel);
      throw;
    }
    if (deadline.expired()) return false;
  }
}

void ThreadMail::wait(const ParcelPtr& parcel) {
  if (!parcel->receives) return finish_send(parcel);
  parcel->limit = Deadline::after(timeout_);
  while (!wait_for(parcel, timeout_)) continue;
}

bool ThreadMail::wait_for(const ParcelPtr& parcel, Milliseconds patience) {
  std::unique_lock lock(mutex_);
  const Milliseconds wait = std::min(patience, parcel->limit.remaining());
  if (wait_until(lock, parcel, Deadline::after(wait))) {
    refuse_message(parcel->difference);
    return true;
  }
  if (!parcel->limit.expired()) return false;
  if (parcel->receives) {
    take_back(parcel);
    time_out(*parcel);
  }
  lock.unlock();
  finish_send(parcel);
  return true;
}

void ThreadMail::take_back(const ParcelPtr& receive) {
  std::erase(boxes_[{receive->from, receive->to, receive->tag}].receives, receive);
}

void ThreadMail::time_out(const Parcel& receive) const {
  throw Error(ErrorCode::timeout, "comm",
              fmt::format("recv: waited {} for a message of rank {} (tag {})",
                          format_duration(timeout_), receive.from, receive.tag),
              "check that the other rank sends it");
}

}  // namespace trireme::comm
