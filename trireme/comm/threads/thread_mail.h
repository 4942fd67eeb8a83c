// Messages between the ranks of a thread group. A message is copied once, from the sender's tensor
// into the receiver's, by the rank that comes second.
//
// No sender waits for a receiver: if it waits before the receiver has come, it copies the message
// aside. The receiver then copies it again.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/deadline.h>
#include <trireme/comm/message_form.h>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

namespace trireme::comm {

// Any thread.
class ThreadMail {
 public:
  // A send or a receive that is in progress.
  struct Parcel {
    at::Tensor tensor;
    MessageForm form;
    int from, to, tag;
    bool receives;
    Deadline limit;  // The time-out of waits with a deadline of their own.
    enum class State { waits, is_set_aside, aside, is_copied, over } state = State::waits;
    std::vector<std::byte> bytes;  // The message, once it has been set aside.
    MessageDifference difference;  // The difference between the message that came and the tensor.
  };
  using ParcelPtr = std::shared_ptr<Parcel>;

  // `throw_if_ended` throws the error that ended the group. A wait calls it every 10 ms.
  ThreadMail(Milliseconds timeout, std::function<void()> throw_if_ended)
      : timeout_(timeout), throw_if_ended_(std::move(throw_if_ended)) {}

  // Messages with equal (from, to, tag) keep their order.
  ParcelPtr send(at::Tensor tensor, int from, int to, int tag);
  ParcelPtr receive(at::Tensor tensor, int from, int to, int tag);
  // A receive throws Error(timeout), or Error(invalid_argument) if the message does not fit the
  // tensor.
  void wait(const ParcelPtr& parcel);
  // Returns whether it is over after `patience`. Throws as wait() does. After the time-out a send
  // is set aside.
  bool wait_for(const ParcelPtr& parcel, Milliseconds patience);

 private:
  using Key = std::tuple<int, int, int>;
  struct Box {
    std::deque<ParcelPtr> sends, receives;  // Not both have parcels.
  };
  void hand_over(std::unique_lock<std::mutex>& lock, Parcel& sent, Parcel& received);
  bool wait_until(std::unique_lock<std::mutex>& lock, const ParcelPtr& parcel, Deadline deadline);
  void finish_send(const ParcelPtr& parcel);
  void take_back(const ParcelPtr& receive);
  [[noreturn]] void time_out(const Parcel& receive) const;

  const Milliseconds timeout_;
  const std::function<void()> throw_if_ended_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Box> boxes_;
};

}  // namespace trireme::comm
