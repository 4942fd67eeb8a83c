// `trireme bench requests`: measures round trips over a request channel between two processes of
// this host, beside a bare exchange of the same bytes over a loopback TCP connection.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <trireme/base/descriptor.h>
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/base/units.h>
#include <trireme/cli/bench_arguments.h>
#include <trireme/cli/server_child.h>
#include <trireme/net/control.h>
#include <trireme/net/requests/request_client.h>
#include <trireme/net/requests/request_server.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace trireme::cli {
namespace {

using Clock = Deadline::Clock;
using Bytes = std::vector<std::byte>;

constexpr int kBlocks = 10;  // The two measurements take turns, so that noise meets both.
constexpr int kWarmUp = 100;

[[noreturn]] void fail_bench(const char* what) {
  throw Error(ErrorCode::io, "cli", fmt::format("{}: {}", what, std::strerror(errno)));
}

void check_requests(const RequestsArguments& arguments) {
  const auto refuse_value = [](const char* name, int64_t value) {
    throw Error(ErrorCode::invalid_argument, "cli", fmt::format("{} {} is below 1", name, value),
                "1 or more");
  };
  if (arguments.steps < 1) refuse_value("--steps", arguments.steps);
  if (arguments.threads < 1) refuse_value("--threads", arguments.threads);
  if (arguments.server_threads < 1) refuse_value("--server-threads", arguments.server_threads);
  net::request_path_from_string(arguments.path);
}

// Blocking transfers of a whole block over a plain socket.
void send_block(int socket, const Bytes& block) {
  for (size_t done = 0; done < block.size();) {
    const ssize_t sent = ::send(socket, block.data() + done, block.size() - done, MSG_NOSIGNAL);
    if (sent <= 0) fail_bench("send");
    done += static_cast<size_t>(sent);
  }
}

bool receive_block(int socket, Bytes& block) {
  for (size_t done = 0; done < block.size();) {
    const ssize_t got = ::recv(socket, block.data() + done, block.size() - done, 0);
    if (got == 0) return false;
    if (got < 0) fail_bench("recv");
    done += static_cast<size_t>(got);
  }
  return true;
}

void send_at_once(int socket) {
  const int on = 1;
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

struct BareListener {
  BareListener() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(socket.get(), 1) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
      fail_bench("a loopback socket");
    port = ntohs(address.sin_port);
  }
  Descriptor socket;
  int port = 0;
};

// Memory for the tensors of requests, which is used again and again, as a server's parameters are.
class Blocks {
 public:
  explicit Blocks(size_t bytes) : bytes_(bytes) {}
  net::Placement place() {
    Bytes block(take());
    const auto owned = std::shared_ptr<Bytes>(new Bytes(std::move(block)), [this](Bytes* used) {
      const std::unique_ptr<Bytes> owner(used);
      const std::lock_guard lock(mutex_);
      free_.push_back(std::move(*used));
    });
    return {.places = {*owned}, .owner = owned};
  }

 private:
  Bytes take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return Bytes(bytes_);
    Bytes block = std::move(free_.back());
    free_.pop_back();
    return block;
  }
  const size_t bytes_;
  std::mutex mutex_;
  std::vector<Bytes> free_;
};

// The server's process.
void serve(const RequestsArguments& arguments, const std::string& token, size_t bytes,
           const ServerChild::TellPorts& tell) {
  net::RequestServerOptions options;
  options.threads = arguments.server_threads;
  options.path = net::request_path_from_string(arguments.path);
  Blocks blocks(bytes);
  const net::RequestServer server(
      {"127.0.0.1", 0}, token,
      {.place = [&](const net::Head&) { return blocks.place(); },
       .handle =
           [](net::Request request, net::Responder responder) {
             responder.reply({.header = request.head.header,
                              .tensors = {{request.head.tensors[0], request.tensors[0].data()}}});
           }},
      options);
  const BareListener listener;
  const int ports[] = {server.endpoint().port, listener.port};
  tell(ports);
  const Descriptor peer(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  send_at_once(peer.get());
  Bytes block(bytes);
  while (receive_block(peer.get(), block)) send_block(peer.get(), block);
  for (;;) ::pause();
}

double microseconds_of(const std::function<void()>& action) {
  const auto start = Clock::now();
  action();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double quantile(std::vector<double>& sorted, double part) {
  return sorted[static_cast<size_t>(part * static_cast<double>(sorted.size() - 1))];
}

struct Measured {
  std::vector<double> requests, bare;     // Microseconds of each round trip.
  double seconds = 0;                     // Of all requests together.
  double requests_cpu = 0, bare_cpu = 0;  // CPU seconds of both processes.
};

// Round trips of several threads over one client.
void measure_requests(net::RequestClient& client, const RequestsArguments& arguments, size_t bytes,
                      int64_t count, Measured& measured) {
  std::vector<std::vector<double>> times(static_cast<size_t>(arguments.threads));
  const auto run = [&](std::vector<double>& mine) {
    const Bytes sent(bytes, std::byte{1});
    Bytes back(bytes);
    const net::Message request{
        .header = "echo",
        .tensors = {{{"block", "uint8", {static_cast<int64_t>(bytes)}, bytes}, sent.data()}}};
    const net::Places places{back};
    for (int64_t i = 0; i < count; ++i)
      mine.push_back(microseconds_of(
          [&] { client.call(request, places, Deadline::after(Milliseconds(60000)), "echo"); }));
  };
  const auto start = Clock::now();
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < times.size(); ++i) others.emplace_back([&, i] { run(times[i]); });
    run(times[0]);
  }
  measured.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  for (const auto& mine : times)
    measured.requests.insert(measured.requests.end(), mine.begin(), mine.end());
}

void measure_bare(int socket, size_t bytes, int64_t count, std::vector<double>& times) {
  const Bytes sent(bytes, std::byte{1});
  Bytes back(bytes);
  for (int64_t i = 0; i < count; ++i)
    times.push_back(microseconds_of([&] {
      send_block(socket, sent);
      if (!receive_block(socket, back)) fail_bench("the bare connection");
    }));
}

Measured measure_all(const RequestsArguments& arguments, size_t bytes, std::string& path) {
  const std::string token = net::make_token();
  const ServerChild child(
      2, [&](const ServerChild::TellPorts& tell) { serve(arguments, token, bytes, tell); });
  const Descriptor bare(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(child.port(1));
  if (::connect(bare.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    fail_bench("connecting to the server");
  send_at_once(bare.get());
  net::ChannelOptions options;
  options.path = net::request_path_from_string(arguments.path);
  net::RequestClient client({"127.0.0.1", child.port(0)}, token,
                            Deadline::after(Milliseconds(10000)), options);
  path = net::to_string(client.path());
  Measured warm, measured;
  measure_requests(client, arguments, bytes, kWarmUp, warm);
  measure_bare(bare.get(), bytes, kWarmUp, warm.bare);
  const int64_t block = (arguments.steps + kBlocks - 1) / kBlocks;
  for (int i = 0; i < kBlocks; ++i) {
    const double start = child.cpu_seconds_of_both();
    measure_requests(client, arguments, bytes, block, measured);
    const double half_way = child.cpu_seconds_of_both();
    measure_bare(bare.get(), bytes, block, measured.bare);
    measured.requests_cpu += half_way - start;
    measured.bare_cpu += child.cpu_seconds_of_both() - half_way;
  }
  std::sort(measured.requests.begin(), measured.requests.end());
  std::sort(measured.bare.begin(), measured.bare.end());
  return measured;
}

}  // namespace

int bench_requests(const RequestsArguments& arguments) {
  check_requests(arguments);
  const auto bytes = static_cast<size_t>(parse_bytes(arguments.bytes));
  if (bytes == 0)
    throw Error(ErrorCode::invalid_argument, "cli", "--bytes 0: a bare exchange needs a byte",
                "--bytes 1 or more");
  std::string path;
  Measured measured = measure_all(arguments, bytes, path);
  const Json json = {
      {"path", path},
      {"bytes", bytes},
      {"threads", arguments.threads},
      {"server_threads", arguments.server_threads},
      {"steps", measured.requests.size()},
      {"median_us", quantile(measured.requests, 0.5)},
      {"p99_us", quantile(measured.requests, 0.99)},
      {"min_us", measured.requests.front()},
      {"cpu_us", measured.requests_cpu * 1e6 / static_cast<double>(measured.requests.size())},
      {"requests_per_second", static_cast<double>(measured.requests.size()) / measured.seconds},
      {"bare_tcp_median_us", quantile(measured.bare, 0.5)},
      {"bare_tcp_p99_us", quantile(measured.bare, 0.99)},
      {"bare_tcp_min_us", measured.bare.front()},
      {"bare_tcp_cpu_us", measured.bare_cpu * 1e6 / static_cast<double>(measured.bare.size())}};
  if (arguments.json)
    fmt::print("{}\n", json.dump());
  else
    fmt::print(
        "{} there and back over {}, {} thread{}: median {:.1f} us, 99 % within {:.1f} us, {:.0f} "
        "requests a second (bare TCP: median {:.1f} us, 99 % within {:.1f} us)\n",
        format_bytes(static_cast<int64_t>(bytes)), path, arguments.threads,
        arguments.threads == 1 ? "" : "s", json["median_us"].get<double>(),
        json["p99_us"].get<double>(), json["requests_per_second"].get<double>(),
        json["bare_tcp_median_us"].get<double>(), json["bare_tcp_p99_us"].get<double>());
  return 0;
}

}  // namespace trireme::cli
