#include <trireme/base/log.h>
#include <trireme/comm/c10d_messages.h>
#include <algorithm>

namespace trireme::comm {
namespace {

bool is_ready(const std::shared_future<void>& result) {
  return result.wait_for(Milliseconds(0)) == std::future_status::ready;
}

}  // namespace

void give_reason(const WaitLimits& limits, const char* operation, const std::string& what,
                 Deadline since) {
  if (since.expired()) limits.time_out(operation, "the other ranks");
  limits.explain(operation, what.substr(0, what.find('\n')));
}

PairwiseWaits::~PairwiseWaits() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}
void PairwiseWaits::add(c10d::Work* work) {
  const std::lock_guard lock(mutex_);
  waits_.insert(work);
}
void PairwiseWaits::remove(c10d::Work* work) {
  const std::lock_guard lock(mutex_);
  waits_.erase(work);
}
void PairwiseWaits::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kWorkSlice, [this] { return ended_; })) {
    if (!limits_->is_lost()) continue;
    for (c10d::Work* work : waits_) work->abort();
  }
}

void Pairwise::wait() {
  limits_->throw_if_lost();
  waits_->add(work_.get());
  waiting_ = true;
  bool done = false, again = true;
  std::string what = "the wait was given up";
  const Deadline deadline = Deadline::after(limits_->timeout());
  try {
    while (!done && again) {
      done = work_->wait(left_ ? kLongestWait : limits_->timeout());
      again = left_ && !given_up_ && !limits_->is_lost();
    }
  } catch (const std::exception& error) {
    what = error.what();
  }
  waits_->remove(work_.get());
  if (done) return;
  if (given_up_) throw Error(ErrorCode::aborted, "comm", "nobody waits for this message");
  if (deadline.expired()) limits_->time_out(operation_, "the other ranks");
  give_reason(*limits_, operation_, what, begun_);
}
// An abort ends the wait in progress, and not Gloo's message.
void Pairwise::leave() {
  left_ = true;
  if (waiting_) work_->abort();
}
void Pairwise::give_up() {
  given_up_ = true;
  work_->abort();
}

void Pending::add(PairwisePtr message) {
  const std::lock_guard lock(mutex_);
  if (left_) message->leave();
  if (given_up_) message->give_up();
  messages_.push_back(std::move(message));
}
void Pending::mark(bool& fact, void (Pairwise::*tell)()) {
  const std::lock_guard lock(mutex_);
  fact = true;
  for (const PairwisePtr& message : messages_) (*message.*tell)();
}
void Pending::wait() {
  for (size_t i = 0; i < messages_.size(); ++i) messages_[i]->wait();
  const std::lock_guard lock(mutex_);
  messages_.clear();  // With their tensors.
}

PairwisePtr Mail::keep(const char* operation, const at::Tensor& tensor,
                       c10::intrusive_ptr<c10d::Work> work) {
  return std::make_shared<Pairwise>(operation, limits_, waits_, tensor, std::move(work));
}
PairwisePtr Mail::send(const char* operation, const at::Tensor& tensor, int to, int tag) {
  std::vector<at::Tensor> tensors{tensor};
  return keep(operation, tensor,
              started(operation, [&] { return backend_->send(tensors, to, tag); }));
}
PairwisePtr Mail::receive(const char* operation, const at::Tensor& tensor, int from, int tag) {
  std::vector<at::Tensor> tensors{tensor};
  return keep(operation, tensor,
              started(operation, [&] { return backend_->recv(tensors, from, tag); }));
}

void Mail::finish(std::shared_ptr<Pending> pending,
                  const std::function<std::shared_future<void>()>& run) {
  std::list<Left> over;  // Let go without the lock.
  const std::lock_guard lock(mutex_);
  for (auto each = left_.begin(); each != left_.end();) {
    const auto next = std::next(each);
    if (is_ready(each->result)) over.splice(over.end(), left_, each);
    each = next;
  }
  if (ended_) return pending->give_up();
  pending->leave();
  left_.push_back({std::move(pending), run()});
}

void Mail::end() {
  std::list<Left> left;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    left.swap(left_);
  }
  for (const Left& each : left) each.pending->give_up();
}

// The group finishes an operation that was started.
Unhurried::~Unhurried() {
  if (result_.valid() && is_ready(result_)) return;
  try {
    mail_->finish(pending_, [this] { return run(std::launch::async); });
  } catch (const std::exception& error) {
    pending_->give_up();
    log_warning("comm: a message that nobody awaits was given up: {}", error.what());
  }
}
void Unhurried::start() {
  if (needs_thread_) run(std::launch::async);
}
void Unhurried::wait() {
  run(std::launch::deferred);
  result_.get();
}
bool Unhurried::wait_for(Milliseconds patience) {
  run(std::launch::async);
  if (result_.wait_for(patience) == std::future_status::timeout) return false;
  result_.get();
  return true;
}
const std::shared_future<void>& Unhurried::run(std::launch how) {
  if (result_.valid()) return result_;
  // The action lets its tensors go when it is over, and not with the result.
  const auto run_once = [action = action_]() mutable { std::exchange(action, nullptr)(); };
  result_ = std::async(how, run_once).share();
  action_ = nullptr;
  return result_;
}

}  // namespace trireme::comm
