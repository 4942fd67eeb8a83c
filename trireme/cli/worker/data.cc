// `trireme data serve`, and the server of a host.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/cli/serve_arguments.h>
#include <trireme/cli/worker/commands.h>
#include <trireme/data/service/addresses.h>
#include <trireme/data/service/host_server.h>
#include <trireme/data/service/served_parts.h>
#include <trireme/run/data_service.h>
#include <trireme/run/dataset.h>
#include <trireme/run/place_cache.h>
#include <trireme/train/stop_signal.h>
#include <cstdio>
#include <memory>
#include <thread>

namespace trireme::cli {
namespace {

constexpr Milliseconds kLookAtStop{100}, kReport{10'000}, kLinger{1000};
constexpr int kInheritedSocket = 3;

data::SampleServerOptions server_options(const Config& config) {
  return {.threads = data::threads_of_server(config.data),
          .bytes = data::bytes_to_keep(config.data)};
}

std::vector<data::ServedPart> parts_of_config(Config config) {
  // The configuration of a server may leave data.service out. Some kinds read records only if a
  // key needs them, and this one does.
  if (data::service_addresses(config.data.service).empty())
    config.data.service = data::kServiceOfHost;
  return data::parts_to_serve(read_data(config));
}

void print_json_line(const Json& json) {
  fmt::print("{}\n", json.dump());
  std::fflush(stdout);
}

void print_use(const data::ServiceUse& use, bool json, bool quiet) {
  if (json)
    print_json_line({{"event", "use"}, {"use", data::to_json(use)}});
  else if (!quiet)
    fmt::print(stderr, "{} clients; {} samples asked, {} made, {} sent; {} kept ({})\n",
               use.clients, use.asked, use.made, use.served, use.kept,
               format_bytes(use.kept_bytes));
}

int serve_data(const ServeArguments& arguments) {
  const StopSignal until_the_end;
  Config config = load_config(arguments.source);
  if (const std::string line = place_cache(config); !line.empty() && !arguments.quiet)
    fmt::print(stderr, "{}\n", line);
  data::SampleServerOptions options = server_options(config);
  options.listen = net::parse_endpoint(arguments.listen);
  options.token = data_token();
  at::set_num_threads(1);  // Each thread of the server makes samples of its own.
  data::SampleServer server(parts_of_config(config), options);
  if (arguments.json)
    print_json_line({{"event", "serving"},
                     {"address", server.endpoint().describe()},
                     {"threads", options.threads},
                     {"bytes", options.bytes}});
  else if (!arguments.quiet)
    fmt::print(stderr, "serves the samples of {} at {}, with {} threads; keeps {} at most\n",
               config.data.name, server.endpoint().describe(), options.threads,
               format_bytes(options.bytes));
  Deadline next = Deadline::after(kReport);
  int64_t reported = -1;
  while (!StopSignal::requested()) {
    std::this_thread::sleep_for(kLookAtStop);
    if (!next.expired()) continue;
    next = Deadline::after(kReport);
    const data::ServiceUse use = server.use();
    if (use.asked != reported) print_use(use, arguments.json, arguments.quiet);
    reported = use.asked;
  }
  print_use(server.use(), arguments.json, arguments.quiet);
  return kExitOk;
}

// Nothing reads what this process prints.
int serve_host(const ConfigSource& source) {
  const StopSignal until_the_end;
  at::set_num_threads(1);
  data::run_host_server(
      Descriptor(kInheritedSocket),
      [&](data::SampleServerOptions& options) {
        const Config config = load_config(source);
        options = server_options(config);
        return parts_of_config(config);
      },
      StopSignal::requested, kLinger);
  return kExitOk;
}

// For the launcher, which has no torch.
int choose_cache_of(const ConfigSource& source) {
  print_json_line(to_json(choose_cache(load_config(source))));
  return kExitOk;
}

}  // namespace

void add_worker_data(Command app) {
  auto serve = std::make_shared<ServeArguments>();
  Command command = app.subcommand("data-serve", "Make the samples of other processes");
  serve->add_to(command);
  command.action([serve] { return serve_data(*serve); });
  auto source = std::make_shared<ConfigSource>();
  Command host = app.subcommand("data-host", "Make the samples of this host's processes");
  host.repeated("--set", source->set);
  host.action([source] { return serve_host(*source); });
  auto of_choice = std::make_shared<ConfigSource>();
  Command cache = app.subcommand("data-cache", "Choose the place of a cache by a few samples");
  cache.repeated("--set", of_choice->set);
  cache.action([of_choice] { return choose_cache_of(*of_choice); });
}

}  // namespace trireme::cli
