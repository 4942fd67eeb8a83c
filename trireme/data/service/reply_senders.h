// Threads that send replies. A reply waits while its client does not read, so one client holds one
// thread at most, and the others stay free for the other clients.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace trireme::data {

// Any thread.
class ReplySenders {
 public:
  // There are as many threads as clients get replies at the same time, up to `most`.
  explicit ReplySenders(int most) : most_(most) {}
  // Waits for the replies that are being sent; drops the others.
  ~ReplySenders();
  // Calls `send` on a thread. The calls for one client are made in their order.
  void add(const std::string& client, std::function<void()> send);

 private:
  void work(const std::stop_token& stop);

  const int most_;
  std::mutex mutex_;  // Guards all below.
  std::condition_variable_any changed_;
  std::map<std::string, std::deque<std::function<void()>>> waiting_;
  std::deque<std::string> ready_;  // Clients with replies to send, none of which is being sent.
  std::set<std::string> busy_;     // Clients to which a thread is sending.
  int free_ = 0;                   // Threads that wait.
  std::vector<std::jthread> threads_;
};

}  // namespace trireme::data
