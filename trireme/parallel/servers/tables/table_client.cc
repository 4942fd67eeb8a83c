#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/tables/table_client.h>
#include <trireme/parallel/servers/tables/table_wire.h>
#include <algorithm>
#include <utility>

namespace trireme {

using servers::TableCall;
using servers::TableReply;
using servers::TableRequest;

struct TableClient::Server {
  std::unique_ptr<net::RequestClient> client;
  int64_t clock = 0;   // The step to push next.
  bool begun = false;  // A pull has begun it.
};

namespace {

[[noreturn]] void refuse_rows(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, remedy);
}

}  // namespace

TableClient::TableClient(const std::vector<net::Endpoint>& servers, const std::string& token,
                         TableClientOptions options, Deadline deadline)
    : options_(std::move(options)) {
  if (std::ssize(servers) != options_.plan.facts.servers)
    refuse_rows(fmt::format("the plan of tables has {} servers, and {} addresses are given",
                            options_.plan.facts.servers, servers.size()),
                "the servers of the plan");
  options_.channel.service = "tables";
  const std::string tables = options_.plan.to_json().dump();
  for (const net::Endpoint& endpoint : servers) {
    servers_.push_back(std::make_unique<Server>());
    Server& server = *servers_.back();
    server.client =
        std::make_unique<net::RequestClient>(endpoint, token, deadline, options_.channel);
    const TableRequest join{.call = TableCall::join, .worker = options_.worker, .text = tables};
    const net::Reply reply =
        server.client->call({servers::encode(join), {}}, net::Places{}, deadline, "join");
    server.clock = servers::decode_table_reply(reply.header).clock;
  }
}

TableClient::~TableClient() = default;

std::vector<at::Tensor> TableClient::get(const std::vector<RowsOfTable>& wanted, bool peeks,
                                         Deadline deadline) {
  for (const RowsOfTable& each : wanted)
    servers::check_wanted(options_.plan.facts.tables, each, options_.worker);
  const servers::DealtPull dealt(options_.plan, wanted);
  // Replies that are under way go before the memory that they are read into.
  std::vector<net::PendingReply> pending;
  for (size_t s = 0; s < servers_.size(); ++s) {
    net::Message message;
    TableRequest request{.call = TableCall::pull,
                         .worker = options_.worker,
                         .clock = servers_[s]->clock,
                         .begins = !peeks && !servers_[s]->begun,
                         .peeks = peeks};
    request.tables = dealt.add_to(message, static_cast<int>(s));
    message.header = servers::encode(request);
    pending.push_back(servers_[s]->client->start(
        message, net::into(dealt.places(static_cast<int>(s))), deadline, "pull of rows"));
  }
  for (size_t s = 0; s < servers_.size(); ++s) {
    const TableReply reply = servers::decode_table_reply(pending[s].wait(deadline).header);
    version_ = std::max(version_, reply.version);
    if (peeks) continue;
    servers_[s]->clock = reply.clock;
    servers_[s]->begun = true;
  }
  return dealt.values();
}

std::vector<at::Tensor> TableClient::pull(const std::vector<RowsOfTable>& wanted,
                                          Deadline deadline) {
  std::vector<at::Tensor> values = get(wanted, /*peeks=*/false, deadline);
  pulled_.add(wanted, values);
  return values;
}

std::vector<at::Tensor> TableClient::peek(const std::vector<RowsOfTable>& wanted,
                                          Deadline deadline) {
  return get(wanted, /*peeks=*/true, deadline);
}

int64_t TableClient::push(int64_t samples, Deadline deadline) {
  // A step without a pull begins here, so that it waits like any other.
  const auto has_begun = [](const auto& server) { return server->begun; };
  if (!std::ranges::all_of(servers_, has_begun)) get({}, /*peeks=*/false, deadline);
  servers::DealtGradients dealt;
  if (samples > 0)
    dealt = {options_.plan, pulled_.gradients(options_.plan.facts.tables, options_.worker,
                                              /*checks=*/true)};
  std::vector<net::PendingReply> pending;
  for (size_t s = 0; s < servers_.size(); ++s) {
    net::Message message;
    TableRequest request{.call = TableCall::push,
                         .worker = options_.worker,
                         .clock = servers_[s]->clock,
                         .samples = samples};
    request.tables = dealt.add_to(message, static_cast<int>(s));
    message.header = servers::encode(request);
    pending.push_back(
        servers_[s]->client->start(message, net::into({}), deadline, "push of rows"));
  }
  // Nothing is taken unless all have answered, so that the same call can be made again.
  std::vector<net::Reply> replies;
  for (net::PendingReply& each : pending) replies.push_back(each.wait(deadline));
  for (size_t s = 0; s < servers_.size(); ++s) {
    const TableReply reply = servers::decode_table_reply(replies[s].header);
    version_ = std::max(version_, reply.version);
    servers_[s]->clock = reply.clock;
    servers_[s]->begun = false;
  }
  forget();
  return next_step();
}

void TableClient::forget() { pulled_.forget(); }

int64_t TableClient::next_step() const {
  int64_t step = 0;
  for (const auto& server : servers_) step = std::max(step, server->clock);
  return step;
}

void TableClient::leave(Deadline deadline) {
  const TableRequest leave{.call = TableCall::leave, .worker = options_.worker};
  for (const auto& server : servers_)
    server->client->call({servers::encode(leave), {}}, net::Places{}, deadline, "leave");
}

}  // namespace trireme
