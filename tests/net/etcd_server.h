// A real etcd for one test, on free ports of this host. It ends with the test, however the test
// ends, and its folder is removed.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <trireme/base/error.h>
#include <trireme/net/etcd.h>
#include <trireme/net/etcd_url.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "free_port.h"

namespace trireme::net {

class EtcdServer {
 public:
  // Null if etcd is not installed.
  static std::unique_ptr<EtcdServer> start() {
    if (::system("command -v etcd >/dev/null 2>&1") != 0) return nullptr;
    for (int attempt = 0; attempt < 3; ++attempt) {
      // Another process may be quicker to take the ports; then this one tries again.
      std::unique_ptr<EtcdServer> server(new EtcdServer);
      if (server->answers_soon()) return server;
    }
    ADD_FAILURE() << "etcd does not start";
    return nullptr;
  }
  ~EtcdServer() {
    ::close(lifeline_);
    if (shell_ > 0) ::waitpid(shell_, nullptr, 0);
  }
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  Endpoint endpoint() const { return {"127.0.0.1", port_}; }
  EtcdUrl url(const std::string& job) const { return {{endpoint()}, job}; }
  // Stops etcd, so that it answers no request, as if the network were cut. Returns when none of
  // its threads runs any more.
  void stop() const {
    ::kill(etcd_, SIGSTOP);
    const auto is_stopped = [](const std::filesystem::path& thread) {
      std::ifstream file(thread / "stat");
      const std::string stat{std::istreambuf_iterator<char>(file), {}};
      return stat.find(") T ") != std::string::npos;
    };
    for (int i = 0; i < 1000; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
      const std::filesystem::directory_iterator threads("/proc/" + std::to_string(etcd_) +
                                                        "/task");
      if (std::ranges::all_of(threads,
                              [&](const auto& thread) { return is_stopped(thread.path()); }))
        return;
    }
    ADD_FAILURE() << "etcd continues after SIGSTOP";
  }
  void go_on() const { ::kill(etcd_, SIGCONT); }

 private:
  EtcdServer() {
    const int peers = free_port();
    port_ = free_port();
    std::array<char, 64> folder{"/tmp/trireme-etcd-XXXXXX"};
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    const std::string here = folder.data(), clients_url = url_of(port_), peers_url = url_of(peers);
    // The shell lives until its standard input ends, which happens with this process. Then it
    // cleans up.
    const std::string script =
        "trap '' INT TERM HUP; etcd --data-dir " + here + "/data --listen-client-urls " +
        clients_url + " --advertise-client-urls " + clients_url + " --listen-peer-urls " +
        peers_url + " --initial-advertise-peer-urls " + peers_url +
        " --initial-cluster default=" + peers_url + " >" + here +
        "/log 2>&1 </dev/null & echo $!; exec >/dev/null; read end; kill -9 $!; wait; rm -rf " +
        here;
    std::array<int, 2> life{}, words{};
    EXPECT_EQ(::pipe2(life.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(words.data(), O_CLOEXEC), 0);
    shell_ = ::fork();
    if (shell_ == 0) {
      ::setsid();
      ::dup2(life[0], STDIN_FILENO);
      ::dup2(words[1], STDOUT_FILENO);
      ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(life[0]);
    ::close(words[1]);
    lifeline_ = life[1];
    std::array<char, 32> text{};
    if (::read(words[0], text.data(), text.size() - 1) > 0) etcd_ = std::atoi(text.data());
    ::close(words[0]);
  }

  static std::string url_of(int port) { return "http://127.0.0.1:" + std::to_string(port); }

  bool answers_soon() const {
    Etcd etcd({endpoint()});
    for (const Deadline deadline = Deadline::after(Milliseconds(15000)); !deadline.expired();) {
      try {
        etcd.get("are you there", deadline);
        return true;
      } catch (const Error&) {
        if (::kill(etcd_, 0) != 0) return false;
        std::this_thread::sleep_for(Milliseconds(20));
      }
    }
    return false;
  }

  int port_ = 0;
  int lifeline_ = -1;
  pid_t shell_ = -1;
  pid_t etcd_ = -1;
};

}  // namespace trireme::net

// Starts etcd for a test of any suite. If etcd is not installed, the test is skipped with a
// message.
#define TRIREME_START_ETCD(server)                                          \
  const auto server = ::trireme::net::EtcdServer::start();                  \
  if (!server)                                                              \
  GTEST_SKIP() << "there is no etcd (scripts/setup test installs Debian's " \
                  "etcd-server)"
