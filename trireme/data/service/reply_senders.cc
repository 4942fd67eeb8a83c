#include <trireme/data/service/reply_senders.h>

#include <trireme/base/log.h>
#include <utility>

namespace trireme::data {

ReplySenders::~ReplySenders() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

void ReplySenders::add(const std::string& client, std::function<void()> send) {
  const std::lock_guard lock(mutex_);
  auto& queue = waiting_[client];
  queue.push_back(std::move(send));
  if (queue.size() > 1 || busy_.contains(client)) return;
  ready_.push_back(client);
  if (std::ssize(ready_) > free_ && std::ssize(threads_) < most_)
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  changed_.notify_one();
}

void ReplySenders::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    ++free_;
    const bool goes_on = changed_.wait(lock, stop, [this] { return !ready_.empty(); });
    --free_;
    if (!goes_on || stop.stop_requested()) return;
    const std::string client = std::move(ready_.front());
    ready_.pop_front();
    const auto queue = waiting_.find(client);
    const std::function<void()> send = std::move(queue->second.front());
    queue->second.pop_front();
    busy_.insert(client);
    lock.unlock();
    try {
      send();
    } catch (const std::exception& error) {
      log_debug("a reply was not sent: {}", error.what());
    }
    lock.lock();
    busy_.erase(client);
    const auto rest = waiting_.find(client);
    if (rest->second.empty())
      waiting_.erase(rest);
    else
      ready_.push_back(client);
  }
}

}  // namespace trireme::data
