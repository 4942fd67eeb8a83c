#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/parameter_server_impl.h>
#include <algorithm>
#include <utility>

namespace trireme {

using servers::refuse_call;
using servers::ServerReply;
using servers::ServerRequest;

namespace {

constexpr int kMostThreads = 32;

}  // namespace

ParameterServer::ParameterServer(const net::Endpoint& listen, std::string token,
                                 ParameterServerOptions options) {
  check(options.consistency, options.workers);
  if (options.workers < 1)
    refuse_call(fmt::format("a parameter server for {} workers", options.workers));
  if (options.server < 0 || options.server >= options.placement.facts.servers)
    refuse_call(fmt::format("server {} of {}", options.server, options.placement.facts.servers));
  const size_t tables = options.tables.facts.tables.size();
  if (tables > 0 && options.tables.facts.servers != options.placement.facts.servers)
    refuse_call(fmt::format("tables on {} servers, and parameters on {}",
                            options.tables.facts.servers, options.placement.facts.servers));
  if (tables > 0 && options.table_options.size() != tables && options.table_options.size() != 1)
    refuse_call(fmt::format("options of {} tables, and the plan has {}",
                            options.table_options.size(), tables),
                "one entry for each table, or one for all");
  if (options.placement.facts.replication > 1)
    for (size_t i = 0; i < tables; ++i)
      if (!grows_without_limits(options.table_options[options.table_options.size() == 1 ? 0 : i]))
        refuse_call(
            fmt::format("table '{}' has admission, eviction or a budget, by the pulls of "
                        "its first server, and copies on {} servers",
                        options.tables.facts.tables[i].name, options.placement.facts.replication),
            "ps.replication=1, or no limits of the table");
  // A thread that answers a slow worker holds up no other one.
  options.channel.threads =
      std::max(options.channel.threads, std::min(options.workers + 1, kMostThreads));
  const int servers = options.placement.facts.servers;
  for (int place = 0; place < options.placement.facts.replication; ++place) {
    const int owner = (options.server - place + servers) % servers;
    impls_[owner] = std::make_shared<Impl>(options, owner, place);
    impls_[owner]->keeper = std::jthread([impl = impls_[owner].get()](const std::stop_token& end) {
      impl->look_after_the_waiting(end);
    });
  }
  if (const auto clock_of_job = impls_.find(0); clock_of_job != impls_.end())
    for (const auto& [owner, impl] : impls_)
      if (owner != 0) clock_of_job->second->beside.push_back(impl.get());
  net::RequestHandler handler;
  handler.place = [this](const net::Head& head) { return place_for(head); };
  handler.handle = [this](net::Request request, net::Responder responder) {
    handle(std::move(request), std::move(responder));
  };
  requests_ = std::make_unique<net::RequestServer>(listen, std::move(token), std::move(handler),
                                                   options.channel);
}

ParameterServer::~ParameterServer() {
  requests_.reset();
  for (const auto& [owner, impl] : impls_) {
    impl->keeper = {};
    impl->writer = {};
    const std::lock_guard lock(impl->mutex);
    impl->waiting.clear();
  }
}

net::Placement ParameterServer::place_for(const net::Head& head) const {
  const servers::RiddenRequest ridden = servers::riders_in(head.header);
  auto at = head.tensors.begin();
  const auto check = [&](std::string_view header, size_t tensors) {
    if (tensors > static_cast<size_t>(head.tensors.end() - at))
      refuse_call(fmt::format("{} tensors for requests that have more", head.tensors.size()));
    const auto end = at + static_cast<std::ptrdiff_t>(tensors);
    impl_of(header).check_tensors(servers::decode_request(header), {at, end});
    at = end;
  };
  for (const auto& rider : ridden.riders) check(rider.header, rider.tensors);
  check(ridden.header, static_cast<size_t>(head.tensors.end() - at));
  return impl_of(ridden.header).memory->place(head.tensors);
}

// A decision that one of the riders refuses reaches none of those behind it.
void ParameterServer::handle(net::Request request, net::Responder responder) {
  const servers::RiddenRequest ridden = servers::riders_in(request.head.header);
  if (ridden.riders.empty())
    return impl_of(ridden.header).handle(std::move(request), std::move(responder));
  std::string told;
  bool is_deposed = false;
  auto note = request.head.tensors.begin();
  auto bytes = request.tensors.begin();
  const auto part_of = [&](std::string_view header, size_t tensors) {
    if (tensors > static_cast<size_t>(request.head.tensors.end() - note))
      refuse_call(
          fmt::format("{} tensors for requests that have more", request.head.tensors.size()));
    net::Request part{{std::string(header), {note, note + static_cast<std::ptrdiff_t>(tensors)}},
                      {bytes, bytes + static_cast<std::ptrdiff_t>(tensors)},
                      request.owner,
                      request.client};
    note += static_cast<std::ptrdiff_t>(tensors);
    bytes += static_cast<std::ptrdiff_t>(tensors);
    return part;
  };
  for (const auto& rider : ridden.riders) {
    const net::Request part = part_of(rider.header, rider.tensors);
    ServerReply reply{.is_deposed = true};
    if (!is_deposed) reply = impl_of(rider.header).answer_rider(part);
    is_deposed = reply.is_deposed;
    told += encode(reply);
  }
  responder.put_before(std::move(told));
  if (is_deposed)
    responder.reply({encode(ServerReply{.is_unchanged = true, .is_deposed = true}), {}});
  else
    impl_of(ridden.header)
        .handle(part_of(ridden.header, static_cast<size_t>(request.head.tensors.end() - note)),
                std::move(responder));
}

ParameterServer::Impl& ParameterServer::impl_of(std::string_view header) const {
  const ServerRequest request = servers::decode_request(header);
  const auto found = impls_.find(request.shard);
  if (found == impls_.end())
    refuse_call(fmt::format("worker {} asks for pieces of server {}, which this one does not have",
                            request.worker, request.shard),
                "the same ps.replication everywhere");
  return *found->second;
}

bool ParameterServer::has_clock() const {
  const auto found = impls_.find(0);
  if (found == impls_.end()) return false;
  const std::lock_guard lock(found->second->mutex);
  return found->second->is_clock && found->second->has_values;
}

net::Endpoint ParameterServer::endpoint() const { return requests_->endpoint(); }

ParameterServerFacts ParameterServer::facts() const {
  ParameterServerFacts own;
  int64_t failovers = 0;
  for (const auto& [owner, impl] : impls_) {
    const std::lock_guard lock(impl->mutex);
    failovers += impl->facts.failovers;
    if (impl->place == 0) own = impl->facts;
  }
  own.failovers = failovers;
  return own;
}

plan::ConsistencyOptions ParameterServer::change(const plan::ConsistencyOptions& consistency) {
  if (!has_clock()) refuse_call("this server does not have the clock");
  Impl& impl = *impls_.at(0);
  check(consistency, impl.options.workers);
  const plan::ConsistencyOptions before = impl.change(consistency);
  impl.answer_the_waiting();
  return before;
}

void ParameterServer::leave(int worker) {
  const auto found = impls_.find(0);
  if (found == impls_.end()) return;
  found->second->leave(worker);
  found->second->answer_the_waiting();
}

}  // namespace trireme
