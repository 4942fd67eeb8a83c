#include <trireme/data/service/sample_service.h>

#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/data/kinds/mixture_options.h>
#include <trireme/data/service/addresses.h>
#include <trireme/data/service/hooks.h>
#include <trireme/data/service/host_socket.h>
#include <trireme/data/service/wire.h>
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <utility>

namespace trireme::data {
namespace {

constexpr Milliseconds kLook{100}, kTry{3000};
// The longest wait for the server of a host while it says that it opens the data.
constexpr Milliseconds kLongestOpening{600'000};
constexpr int kMostStarts = 3;  // Of the host's server, in one try.

bool same_bytes(const at::Tensor& one, const at::Tensor& other) {
  if (one.defined() != other.defined()) return false;
  if (!one.defined()) return true;
  const at::Tensor a = one.contiguous(), b = other.contiguous();
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

bool same_samples(const Example& one, const Example& other) {
  return same_bytes(one.data, other.data) && same_bytes(one.target, other.target) &&
         std::ranges::equal(one.more, other.more, [](const auto& a, const auto& b) {
           return a.first == b.first && same_bytes(a.second, b.second);
         });
}

// Samples made here; empty if a record cannot be read.
std::optional<Example> made_here(const Source& source, const Draws& draws,
                                 std::vector<size_t>& left_out) {
  try {
    return source.get_kept(draws, left_out);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The folder counts too: the content of image folders is that of names and sizes, and two jobs may
// have other images of the same names.
std::string digest_of_all(const std::vector<SampleService::Part>& parts,
                          const std::string& folders) {
  std::string all = folders;
  for (const SampleService::Part& part : parts) all += part.facts.digest;
  return sha256_hex(all);
}

std::string place_of(const std::string& path) {
  std::error_code unknown;
  const auto place = std::filesystem::weakly_canonical(path, unknown);
  const bool is_address = path.find("://") != std::string::npos;
  return path.empty() || unknown || is_address ? path : place.string();
}

std::string places_of_files(const DataOptions& options) {
  std::string places;
  for (const std::string* const path : paths_of(options)) places += place_of(*path) + "\n";
  return places;
}

// The places of the files of the data set and of its sources.
std::string places_of_all_files(const DataOptions& options) {
  std::string places = places_of_files(options);
  if (options.sources.empty()) return places;
  for (const SourceOptions& source : sources_of(options))
    places += places_of_files(source.options);
  return places + options.sources;
}

}  // namespace

SampleService::SampleService(const DataOptions& options)
    : addresses_(service_addresses(options.service)),
      folders_(places_of_all_files(options)),
      timeout_(options.service_timeout) {}

void SampleService::connect() {
  for (const std::string& address : addresses_) links_.push_back(make_link(address));
  const bool is_of_host = addresses_ == std::vector<std::string>{kServiceOfHost};
  const Milliseconds patience =
      is_of_host ? std::max(timeout_, service_hooks().host_patience) : timeout_;
  for (const auto& link : links_) {
    try {
      link->open(patience);
    } catch (const Error& error) {
      // A server that is away may come back, and a worker that starts anew need not wait for it.
      if (error.code() != ErrorCode::timeout && error.code() != ErrorCode::peer_lost) throw;
      log_warning("{}; this process makes the samples until it is there: {}", link->name(),
                  parts_of(error).what);
    }
  }
  keeper_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
}

SampleService::~SampleService() { ends_.request_stop(); }

std::unique_ptr<ServerLink> SampleService::make_link(const std::string& address) {
  const auto prove_it = [this](const std::string& name, net::RequestClient& client,
                               Deadline deadline) { prove(name, client, deadline); };
  if (address == kServiceOfHost)
    return std::make_unique<ServerLink>(
        "the data service of this host", [this](Deadline deadline) { return join_host(deadline); },
        prove_it, timeout_);
  const net::Endpoint server = net::parse_endpoint(address);
  const ServiceHooks hooks = service_hooks();
  if (!hooks.token)
    throw Error(ErrorCode::unsupported, "data", "this programme has no secret of a data service",
                "training_of() of trireme/run/training.h, which reads it");
  const std::string token = hooks.token();
  return std::make_unique<ServerLink>(
      fmt::format("the data service at {}", server.describe()),
      [server, token, silence = timeout_](Deadline deadline) {
        return connect_to(server, token, deadline, silence);
      },
      prove_it, timeout_);
}

// Calls the process that has the name, or takes the name and starts the server.
OpenServer SampleService::join_host(Deadline deadline) {
  const std::string name = host_service_name(digest_of_all(parts_, folders_));
  const ServiceHooks hooks = service_hooks();
  if (!hooks.start_host)
    throw Error(ErrorCode::unsupported, "data", "this programme cannot start a data service",
                "training_of() of trireme/run/training.h, or data.service: HOST:PORT");
  for (int starts = 0; !deadline.expired();) {
    std::optional<Descriptor> line = call_host_name(name);
    if (!line) {
      if (const auto listener = claim_host_name(name)) {
        if (++starts > kMostStarts) break;
        line = call_host_name(name);
        hooks.start_host(listener->get());
      } else {
        std::this_thread::sleep_for(Milliseconds(5));
        continue;
      }
    }
    if (!line) continue;
    const auto greeting = await_greeting(line->get(), deadline);
    if (!greeting) {  // It has just ended.
      std::this_thread::sleep_for(Milliseconds(50));
      continue;
    }
    if (!greeting->error.empty())
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("the data service of this host cannot make the samples: {}",
                              greeting->error),
                  "data.service: none, or what that message says");
    OpenServer opened =
        connect_to(greeting->at, greeting->token, Deadline::after(deadline.allowed()), timeout_);
    opened.life_line = std::move(*line);
    return opened;
  }
  throw Error(ErrorCode::timeout, "data", "the data service of this host does not start, or ends",
              "a longer data.service_timeout, or data.service: none");
}

// The server may index large files. Each sign of it gives it as much time again as the first one.
std::optional<HostGreeting> SampleService::await_greeting(int line, Deadline deadline) const {
  const Deadline longest = Deadline::after(kLongestOpening);
  for (bool was_told = false;;) {
    auto greeting = receive_greeting(line, deadline);
    if (!greeting || !greeting->is_opening) return greeting;
    if (longest.expired() || ends_.stop_requested())
      throw Error(ErrorCode::timeout, "data", "the data service of this host still opens the data",
                  "trireme data index, so that it need not read all files");
    if (!std::exchange(was_told, true))
      log_info("waits for the data service of this host, which opens the data");
    deadline = Deadline::after(deadline.allowed());
  }
}

void SampleService::prove(const std::string& server, net::RequestClient& client,
                          Deadline deadline) {
  std::vector<PartFacts> facts;
  for (const Part& part : parts_) facts.push_back(part.facts);
  compare_parts(client, facts, deadline);
  for (const Part& part : parts_) {
    const int64_t last = part.source->size() - 1;
    Draws draws({0, last / 2, last}, 0, 1);
    if (part.facts.longest > 0) draws.longest = longest_of(*part.source, draws);
    std::vector<size_t> left_out;
    const std::optional<Example> own = made_here(*part.source, draws, left_out);
    if (!own) continue;
    ReceivedSamples received;
    client.call(
        {.header = request_of(part.facts, draws)},
        [&](const net::Head& head) {
          net::Places places;
          received = receive_into(head, draws.indices.size(), places, client.server());
          return places;
        },
        deadline, "a sample");
    if (received.work) work_.at(part.facts.digest).note(server, *received.work, 0);
    if (left_out == received.left_out &&
        (!received.rows.data.defined() || same_samples(*own, received.rows)))
      continue;
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("{} makes another sample of the same records of the {} part than this "
                            "process",
                            client.server(), part.facts.name),
                "stages and functions that give the same for the same draw, the same libraries, "
                "or data.service: none");
  }
}

std::optional<Example> SampleService::ask(const PartFacts& part, const Draws& draws,
                                          std::vector<size_t>& left_out) {
  if (std::ssize(draws.indices) > kMostSamplesOfRequest) return std::nullopt;
  const Deadline deadline = Deadline::after(timeout_);
  const net::Message request{.header = request_of(part, draws)};
  // All shares of a global batch go to the same server, for any number of ranks, so that jobs in
  // step share its samples.
  const size_t first =
      mix64(static_cast<uint64_t>(draws.epoch), static_cast<uint64_t>(draws.consumed)) %
      links_.size();
  for (size_t i = 0; i < links_.size(); ++i) {
    ServerLink& link = *links_[(first + i) % links_.size()];
    if (!link.is_usable()) continue;
    ReceivedSamples received;
    const Milliseconds patience = deadline.remaining() / static_cast<int64_t>(links_.size() - i);
    const bool came = link.ask(
        request,
        [&](const net::Head& head) {
          net::Places places;
          received = receive_into(head, draws.indices.size(), places, link.name());
          return places;
        },
        patience);
    if (!came) continue;
    if (received.work)
      work_.at(part.digest).note(link.name(), *received.work, std::ssize(draws.indices));
    // Without a row the form of the tensors is not known.
    if (!received.rows.data.defined()) return std::nullopt;
    left_out = std::move(received.left_out);
    return std::move(received.rows);
  }
  return std::nullopt;
}

int64_t longest_of(const Source& source, const Draws& draws) {
  int64_t longest = 0;
  for (size_t i = 0; i < draws.indices.size(); ++i)
    if (const auto size = source.size_of(draws.at(i))) longest = std::max(longest, size->length);
  return longest;
}

void SampleService::work(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  while (!never.wait_for(lock, stop, kLook, [] { return false; }) && !stop.stop_requested())
    for (const auto& link : links_)
      if (!stop.stop_requested() && link->is_due()) link->try_again(kTry);
}

}  // namespace trireme::data
