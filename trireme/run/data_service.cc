#include <trireme/run/data_service.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <trireme/base/environment.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/data/service/addresses.h>
#include <trireme/data/service/facts.h>
#include <trireme/data/service/hooks.h>
#include <trireme/data/service/server_link.h>
#include <trireme/launch/descendants.h>
#include <trireme/launch/process.h>
#include <trireme/membership/identity.h>
#include <trireme/run/places.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

namespace trireme {
namespace {

// The number of the socket that a host's server inherits.
constexpr int kListener = 3;

// The keys that decide about the data, and those without which a configuration is refused.
bool is_for_server(const std::string& setting) {
  if (setting.starts_with("data.service=")) return false;
  constexpr std::string_view kServerSections[] = {"data.", "model.", "loss."};
  return std::ranges::any_of(kServerSections,
                             [&](auto each) { return setting.starts_with(each); }) &&
         !setting.starts_with("model.weights");
}

// After fork() in a process with threads: only functions that are safe there.
[[noreturn]] void become_host_server(int listener, const char* program, char* const* argv,
                                     char* const* environment) {
  ::setsid();
  const pid_t second = ::fork();
  if (second != 0) ::_exit(second < 0 ? 1 : 0);
  const int nothing = ::open("/dev/null", O_RDWR);
  // A duplicate, in case the socket has the number of a standard stream.
  const int socket = ::fcntl(listener, F_DUPFD, 10);
  for (const int stream : {0, 1, 2}) ::dup2(nothing, stream);
  ::dup2(socket, kListener);
  ::close_range(kListener + 1, ~0U, 0);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGPIPE, SIGINT, SIGHUP, SIGTERM}) ::signal(signal, SIG_DFL);
  ::execve(program, argv, environment);
  ::_exit(1);
}

void start_host_server(int listener, const std::vector<std::string>& settings,
                       const std::string& library) {
  std::vector<std::string> words = torch_command("trireme-worker", library);
  const std::string program = words.front();
  words.emplace_back("data-host");
  for (const std::string& setting : settings)
    if (is_for_server(setting)) words.insert(words.end(), {"--set", setting});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> variables = launch::environment_of_this_process();
  // The server belongs to no job.
  std::erase_if(variables, [](const std::string& variable) {
    return variable.starts_with("TRIREME_") && !variable.starts_with("TRIREME_LOG=") &&
           !variable.starts_with("TRIREME_DATA=");
  });
  for (const char* own : {launch::kOutlivesJob, "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1"})
    variables.emplace_back(own);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  const pid_t first = ::fork();
  if (first == 0) become_host_server(listener, program.c_str(), argv.data(), environment.data());
  if (first < 0)
    throw Error(
        ErrorCode::io, "data",
        fmt::format("the data service of this host cannot be started: {}", std::strerror(errno)),
        "data.service: none");
  int status = 0;
  while (::waitpid(first, &status, 0) < 0 && errno == EINTR) continue;
}

std::vector<net::Endpoint> servers_of(const Config& config) {
  std::vector<net::Endpoint> servers;
  for (const std::string& address : data::service_addresses(config.data.service))
    if (address != data::kServiceOfHost) servers.push_back(net::parse_endpoint(address));
  return servers;
}

}  // namespace

void use_data_service(const Config& config) {
  data::set_service_hooks(
      {.token = data_token,
       .start_host = [settings = to_settings(config), library = config.library](int listener) {
         start_host_server(listener, settings, library);
       }});
}

std::string data_token() {
  const Environment environment = Environment::of_process();
  if (const auto token = membership::token_from(environment, "TRIREME_DATA_TOKEN")) return *token;
  if (const auto token = membership::token_from(environment)) return *token;
  throw Error(ErrorCode::invalid_argument, "data",
              "there is no secret for the data service: neither TRIREME_DATA_TOKEN nor "
              "TRIREME_DATA_TOKEN_FILE is set",
              "the output of `openssl rand -hex 32`, the same for workers and servers");
}

void check_data_service(const Config& config, const data::Dataset& data) {
  if (data::service_addresses(config.data.service).empty()) return;
  const std::vector<data::PartFacts> parts = data::facts_of_parts(data);
  const std::vector<net::Endpoint> servers = servers_of(config);
  if (servers.empty()) return;
  const std::string token = data_token();
  std::optional<Error> unreachable;
  bool any = false;
  for (const net::Endpoint& server : servers) {
    const Deadline deadline = Deadline::after(config.data.service_timeout);
    try {
      data::compare_parts(
          *data::connect_to(server, token, deadline, config.data.service_timeout).client, parts,
          deadline);
      any = true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timeout && error.code() != ErrorCode::peer_lost) throw;
      unreachable = error;
    }
  }
  if (!any && unreachable) throw *unreachable;
  if (unreachable) log_warning("{}", parts_of(*unreachable).what);
}

std::string describe_data_service(const Config& config) {
  const auto addresses = data::service_addresses(config.data.service);
  if (addresses.empty()) return "";
  const std::string patience = fmt::format("a worker makes a batch itself after {}",
                                           format_duration(config.data.service_timeout));
  if (addresses.front() == data::kServiceOfHost)
    return fmt::format("one process for all jobs of this user on each host; {}", patience);
  return fmt::format("trireme data serve at {}; {}", fmt::join(addresses, ", "), patience);
}

}  // namespace trireme
