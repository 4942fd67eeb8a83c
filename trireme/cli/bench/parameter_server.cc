// `trireme bench ps`: pushes and pulls between a worker and a parameter server in another process
// of this host.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <trireme/base/descriptor.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/cli/bench/ranks.h>
#include <trireme/net/control.h>
#include <trireme/parallel/servers/parameter_server.h>
#include <trireme/parallel/servers/server_client.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

namespace trireme::cli {
namespace {

constexpr int kFirstRounds = 20;  // They are not measured.

[[noreturn]] void fail_ps(const char* what) {
  throw Error(ErrorCode::io, "cli", fmt::format("{}: {}", what, std::strerror(errno)));
}

plan::PlacementPlan one_tensor(int64_t bytes) {
  return plan::plan_placement({.tensors = {{"parameter", {bytes / 4}}}, .servers = 1});
}

// The process of the server. It ends with its parent.
class PsChild {
 public:
  PsChild(const std::string& token, int64_t bytes, net::RequestPath path) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail_ps("a pipe");
    const Descriptor from(ends[0]);
    Descriptor to(ends[1]);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) fail_ps("fork");
    if (pid_ == 0) {
      try {
        serve(token, bytes, path, to.get(), parent);
      } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
      }
      ::_exit(1);
    }
    to.reset();  // The end of the server's process is then the end of the pipe.
    if (::read(from.get(), &port, sizeof port) != sizeof port)
      throw Error(ErrorCode::peer_lost, "cli", "the server's process ended at its start");
  }
  ~PsChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  PsChild(const PsChild&) = delete;
  int port = 0;

 private:
  [[noreturn]] static void serve(const std::string& token, int64_t bytes, net::RequestPath path,
                                 int port_to, pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // It ended before the call above.
    ParameterServerOptions options{.placement = one_tensor(bytes),
                                   .optimizer = SGD{.lr = 1e-3},
                                   .consistency = {plan::Consistency::async}};
    options.channel.path = path;
    const ParameterServer server({"127.0.0.1", 0}, token, std::move(options));
    const int port = server.endpoint().port;
    if (::write(port_to, &port, sizeof port) != sizeof port) ::_exit(1);
    for (;;) ::pause();
  }

  pid_t pid_ = -1;
};

std::vector<double> seconds_of_rounds(int64_t bytes, net::RequestPath path, int64_t steps) {
  const std::string token = net::make_token();
  const PsChild child(token, bytes, path);
  at::Tensor parameter = at::full({bytes / 4}, 1.0).set_requires_grad(true);
  parameter.mutable_grad() = at::full({bytes / 4}, 0.5);
  ServerClientOptions options{.placement = one_tensor(bytes)};
  options.channel.path = path;
  const auto soon = [] { return Deadline::after(Milliseconds(60000)); };
  ServerClient client({{"127.0.0.1", child.port}}, token, options, {{"parameter", parameter}},
                      soon());
  client.initialise(soon());
  client.pull(soon());
  std::vector<double> seconds;
  for (int64_t i = -kFirstRounds; i < steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    client.push_pull(1, soon());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (i >= 0) seconds.push_back(took.count());
  }
  return seconds;
}

}  // namespace

int bench_parameter_server(const RankArguments& arguments) {
  require_steps(arguments);
  const int64_t bytes = parse_bytes(arguments.bytes);
  if (bytes < 4)
    throw Error(ErrorCode::invalid_argument, "cli", fmt::format("--bytes {}", arguments.bytes),
                "4 or more: float32 has 4 bytes");
  std::vector<double> seconds =
      seconds_of_rounds(bytes, net::request_path_from_string(arguments.path), arguments.steps);
  std::ranges::sort(seconds);
  const auto at = [&](double part) {
    return seconds[static_cast<size_t>(part * static_cast<double>(seconds.size() - 1))] * 1e6;
  };
  const Json json = {{"bytes", bytes / 4 * 4},   {"path", arguments.path},
                     {"steps", arguments.steps}, {"median_us", at(0.5)},
                     {"p99_us", at(0.99)},       {"min_us", at(0)}};
  if (arguments.json)
    fmt::print("{}\n", json.dump());
  else
    fmt::print("push and pull of {} over {}: median {:.1f} us, 99 % within {:.1f} us\n",
               format_bytes(bytes), arguments.path, at(0.5), at(0.99));
  return 0;
}

}  // namespace trireme::cli
