#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <trireme/base/cores.h>
#include <trireme/base/host_name.h>
#include <trireme/base/units.h>
#include <trireme/base/version.h>
#include <trireme/cli/worker/commands.h>
#include <trireme/comm/gloo/gloo_group.h>
#include <trireme/comm/mpi/mpi_group.h>
#include <trireme/comm/nccl/nccl_group.h>
#include <trireme/data/kinds/shipped_data.h>
#include <trireme/membership/identity.h>
#include <trireme/membership/launcher_table.h>
#include <trireme/train/replica_device.h>
#include <unistd.h>
#include <sstream>

namespace trireme::cli {
namespace {

std::string digits_place() {
  try {
    return data::shipped_data("digits.csv.gz").string();
  } catch (const std::exception&) {
    return "not found";
  }
}

// Which variables made the identity, and which were seen and ignored.
Json reasons(const membership::Explanation& explanation) {
  Json json = {{"launcher", explanation.title},
               {"decided", explanation.decided},
               {"ignored", Json::array()},
               {"text", explanation.describe()}};
  for (const auto& each : explanation.ignored)
    json["ignored"].push_back(
        {{"launcher", each.title}, {"variables", each.variables}, {"why", each.why}});
  return json;
}

// A line of its own for each launcher whose variables were seen.
void print_reasons(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) fmt::print("           {}\n", line);
}

Json findings() {
  const Environment environment = Environment::of_process();
  const membership::Identity identity = membership::resolve_identity(environment);
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  Json json;
  json["trireme"] = version();
  json["libtorch"] = TORCH_VERSION;
  json["host"] = {{"name", own_host_name()}, {"cores", usable_cores()}, {"memory_bytes", memory}};
  json["identity"] = {{"understood", identity.describe()},
                      {"worker", identity.worker},
                      {"workers", identity.workers},
                      {"local_worker", identity.local_worker},
                      {"local_workers", identity.local_workers},
                      {"rendezvous", identity.rendezvous ? identity.rendezvous->describe()
                                     : identity.etcd     ? identity.etcd->describe()
                                                         : ""},
                      {"token", identity.token ? "set" : "not set"},
                      {"reasons", reasons(membership::explain_identity(environment))}};
  const auto state = [](bool here, const char* missing) {
    return std::string(here ? "compiled in" : missing);
  };
  json["backends"] = {
      {"threads", "compiled in"},
      {"shm", "compiled in"},
      {"tcp", "compiled in"},
      {"gloo", state(comm::gloo_is_compiled_in(), "not compiled in (TRIREME_GLOO was off)")},
      {"mpi", state(comm::mpi_is_compiled_in(),
                    "not compiled in (libopenmpi-dev was missing, or TRIREME_MPI off)")},
      {"nccl", state(comm::nccl_is_compiled_in(), "not compiled in (TRIREME_NCCL was off)")}};
  json["threads"] = {
      {"operators", at::get_num_threads()},
      {"OMP_NUM_THREADS",
       std::getenv("OMP_NUM_THREADS") ? std::getenv("OMP_NUM_THREADS") : "not set"},
      {"MKL_NUM_THREADS",
       std::getenv("MKL_NUM_THREADS") ? std::getenv("MKL_NUM_THREADS") : "not set"}};
  json["devices"] = {{"cpu", true}, {"cuda", devices_of(at::kCUDA) > 0}};
  json["device_counts"] = Json::object();
  for (const auto type : {at::kCUDA, at::kXPU, at::kMPS, at::kHPU, at::kMTIA, at::kPrivateUse1})
    if (const int count = devices_of(type); count > 0)
      json["device_counts"][c10::DeviceTypeName(type, /*lower_case=*/true)] = count;
  json["digits"] = digits_place();
  return json;
}

int doctor(bool as_json) {
  const Json json = findings();
  if (as_json) {
    fmt::print("{}\n", json.dump(2));
    return 0;
  }
  fmt::print("Trireme {} with LibTorch {}\n", json["trireme"].get<std::string>(),
             json["libtorch"].get<std::string>());
  fmt::print("host       {}: {} cores, {} of memory\n", json["host"]["name"].get<std::string>(),
             json["host"]["cores"].get<int>(),
             format_bytes(json["host"]["memory_bytes"].get<int64_t>()));
  fmt::print("identity   {}\n", json["identity"]["understood"].get<std::string>());
  print_reasons(json["identity"]["reasons"]["text"].get<std::string>());
  fmt::print("token      {}\n", json["identity"]["token"].get<std::string>());
  for (const auto& [name, state] : json["backends"].items())
    fmt::print("backend    {}: {}\n", name, state.get<std::string>());
  fmt::print("threads    {} for operators (OMP_NUM_THREADS {}, MKL_NUM_THREADS {})\n",
             json["threads"]["operators"].get<int>(),
             json["threads"]["OMP_NUM_THREADS"].get<std::string>(),
             json["threads"]["MKL_NUM_THREADS"].get<std::string>());
  std::string devices = "cpu";
  for (const auto& [type, count] : json["device_counts"].items())
    devices += fmt::format(", {} ({})", type, count.get<int>());
  fmt::print("devices    {}\n", devices);
  fmt::print("digits     {}\n", json["digits"].get<std::string>());
  return 0;
}

}  // namespace

void add_worker_doctor(Command app) {
  auto json = std::make_shared<bool>(false);
  Command command =
      app.subcommand("doctor", "Print what Trireme understood, and what is compiled in");
  command.flag("--json", *json);
  command.action([json] { return doctor(*json); });
}

}  // namespace trireme::cli
