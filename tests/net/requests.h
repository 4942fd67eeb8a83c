// Servers and clients of request channels for tests: in this process, and in one of their own that
// a test can stop or kill.
#pragma once
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <trireme/base/units.h>
#include <trireme/net/requests/request_client.h>
#include <trireme/net/requests/request_server.h>
#include <unistd.h>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace trireme::net {

inline const std::string kRequestToken = "a token of the request tests";
inline Deadline in_ten_seconds() { return Deadline::after(Milliseconds(10000)); }

using Bytes = std::vector<std::byte>;

inline Bytes pattern(size_t count, int seed) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i)
    bytes[i] =
        static_cast<std::byte>((i + static_cast<size_t>(seed)) * 0x9e3779b97f4a7c15ULL >> 56);
  return bytes;
}

inline Message::Tensor tensor_of(const Bytes& bytes, std::string name = "t") {
  return {{std::move(name), "uint8", {static_cast<int64_t>(bytes.size())}, bytes.size()},
          bytes.data()};
}

inline Message reply_of(const Request& request) {
  Message reply{.header = request.head.header, .tensors = {}};
  for (size_t i = 0; i < request.tensors.size(); ++i)
    reply.tensors.push_back({request.head.tensors[i], request.tensors[i].data()});
  return reply;
}

inline void echo(Request request, Responder responder) { responder.reply(reply_of(request)); }

// A door that requests wait at until a test opens it.
class Gate {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, in_ten_seconds().at(), [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// Echoes requests. One with the header "block" first waits for the gate.
inline RequestHandler echo_but_block(Gate& gate) {
  return {.handle = [&gate](Request request, Responder responder) {
    if (request.head.header == "block") gate.wait();
    echo(std::move(request), std::move(responder));
  }};
}

// Whether `condition` holds within ten seconds.
inline bool eventually(const std::function<bool()>& condition) {
  for (const Deadline deadline = in_ten_seconds(); !deadline.expired(); ::usleep(1000))
    if (condition()) return true;
  return false;
}

// A process with a server of its own. The parent may kill or stop it.
class ServerProcess {
 public:
  ServerProcess(const RequestHandler& handler, const RequestServerOptions& options) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      RequestServer server({"127.0.0.1", 0}, kRequestToken, handler, options);
      const int port = server.endpoint().port;
      (void)!::write(ends[1], &port, sizeof port);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    int port = 0;
    if (::read(ends[0], &port, sizeof port) != sizeof port) ADD_FAILURE() << "no server";
    ::close(ends[0]);
    endpoint = {"127.0.0.1", port};
  }
  ~ServerProcess() {
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void signal(int number) { ::kill(pid_, number); }
  Endpoint endpoint;

 private:
  pid_t pid_;
};

// Tests for both paths of the bytes.
class OnEachPath : public testing::TestWithParam<RequestPath> {
 protected:
  RequestServerOptions server_options(int threads = 2) const {
    RequestServerOptions options;
    options.path = GetParam();
    options.threads = threads;
    return options;
  }
  ChannelOptions client_options() const {
    ChannelOptions options;
    options.path = GetParam();
    return options;
  }
  // Ends server and client before the objects that the handler uses, which are declared earlier.
  struct Running {
    ~Running() {
      test.server.reset();
      test.client.reset();
    }
    OnEachPath& test;
  };
  [[nodiscard]] Running start(RequestHandler handler,
                              std::optional<RequestServerOptions> options = {},
                              std::optional<ChannelOptions> of_client = {}) {
    server =
        std::make_unique<RequestServer>(Endpoint{"127.0.0.1", 0}, kRequestToken,
                                        std::move(handler), options ? *options : server_options());
    client = connect(of_client);
    EXPECT_EQ(client->path(), GetParam());
    return {*this};
  }
  std::unique_ptr<RequestClient> connect(std::optional<ChannelOptions> options = {}) const {
    return std::make_unique<RequestClient>(server->endpoint(), kRequestToken, in_ten_seconds(),
                                           options ? *options : client_options());
  }
  // Sends the bytes and expects them back.
  static void expect_echo(RequestClient& to, const Bytes& sent) {
    Bytes back(sent.size());
    const Reply reply =
        to.call({.header = "echo", .tensors = {tensor_of(sent)}}, {back}, in_ten_seconds());
    EXPECT_EQ(reply.header, "echo");
    EXPECT_TRUE(back == sent);
  }
  std::unique_ptr<RequestServer> server;
  std::unique_ptr<RequestClient> client;
};

inline std::string path_name(const testing::TestParamInfo<RequestPath>& info) {
  return std::string(to_string(info.param));
}

}  // namespace trireme::net
