// The gradients of a step that go to servers on other hosts while backward runs.
#pragma once
#include <trireme/net/requests/request_client.h>
#include <trireme/parallel/servers/server_client_impl.h>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme {

// Its owner's thread uses it, but for jobs and the replies that they get.
struct ServerClient::Early {
  struct OfLink {
    int shard = 0, server = 0;
    // Rows of tables may be wanted in backward, and a call for them may find the server lost.
    std::shared_ptr<net::RequestClient> client = {};
    servers::SentEarly sent = {};
    std::vector<size_t> waiting = {};  // Pieces that are complete and have not gone.
    int64_t bytes = 0;                 // Of those.
    // The thread's, until wait() returns.
    std::vector<net::PendingReply> replies = {};
    bool has_failed = false;
  };
  struct Job {
    size_t link = 0;
    net::Message message;
  };

  Early();
  void send_on(const std::stop_token& stop);
  void wait();  // Until all jobs are done; each of them has a deadline.

  std::vector<OfLink> links;
  std::vector<bool> complete;  // [parameter]
  int64_t step = 0, attempt = 0, failures = 0;
  bool is_open = false;      // Backward runs.
  bool counts = false;       // The next push may leave out what has gone.
  Milliseconds patience{0};  // For one message, and for all answers.

  std::mutex mutex;  // Guards the next two.
  std::condition_variable_any changed;
  std::deque<Job> jobs;
  int under_way = 0;  // Jobs that are not done.
  std::jthread thread;
};

}  // namespace trireme
