// `trireme bench ps`: pushes and pulls between a worker and a parameter server in another process
// of this host.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/cli/bench/ranks.h>
#include <trireme/cli/server_child.h>
#include <trireme/net/control.h>
#include <trireme/parallel/servers/parameter_server.h>
#include <trireme/parallel/servers/server_client.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>

namespace trireme::cli {
namespace {

constexpr int kFirstRounds = 20;  // They are not measured.

plan::PlacementPlan one_tensor(int64_t bytes) {
  return plan::plan_placement({.tensors = {{"parameter", {bytes / 4}}}, .servers = 1});
}

void serve_parameters(const std::string& token, int64_t bytes, net::RequestPath path,
                      const ServerChild::TellPorts& tell) {
  ParameterServerOptions options;
  options.placement = one_tensor(bytes);
  options.optimizer = SGD{.lr = 1e-3};
  options.consistency = {plan::Consistency::async};
  options.channel.path = path;
  const ParameterServer server({"127.0.0.1", 0}, token, std::move(options));
  const int port = server.endpoint().port;
  tell({&port, 1});
  for (;;) ::pause();
}

std::vector<double> seconds_of_rounds(int64_t bytes, net::RequestPath path, int64_t steps) {
  const std::string token = net::make_token();
  const ServerChild child(
      1, [&](const ServerChild::TellPorts& tell) { serve_parameters(token, bytes, path, tell); });
  at::Tensor parameter = at::full({bytes / 4}, 1.0).set_requires_grad(true);
  parameter.mutable_grad() = at::full({bytes / 4}, 0.5);
  ServerClientOptions options;
  options.placement = one_tensor(bytes);
  options.channel.path = path;
  const auto soon = [] { return Deadline::after(Milliseconds(60000)); };
  ServerClient client({net::Endpoint{"127.0.0.1", child.port()}}, token, options,
                      {{"parameter", parameter}}, soon());
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
