#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/tables/dealt_rows.h>
#include <trireme/parallel/servers/tables/row_gradients.h>
#include <trireme/parallel/servers/tables/table_checks.h>
#include <trireme/parallel/servers/tables/table_client.h>
#include <trireme/parallel/servers/tables/table_wire.h>
#include <algorithm>
#include <map>
#include <utility>

namespace trireme {

using servers::DealtRows;
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

std::span<const int64_t> row_numbers(const at::Tensor& rows) {
  return {rows.const_data_ptr<int64_t>(), static_cast<size_t>(rows.numel())};
}

std::span<std::byte> bytes_of_values(const at::Tensor& values) {
  return {static_cast<std::byte*>(values.mutable_data_ptr()), values.nbytes()};
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

int TableClient::find(const std::string& table) const {
  const int number = options_.plan.find(table);
  if (number >= 0) return number;
  std::vector<std::string> names;
  for (const plan::TableSpec& spec : options_.plan.facts.tables) names.push_back(spec.describe());
  refuse_rows(fmt::format("there is no table '{}' on the servers", table),
              fmt::format("{}", fmt::join(names, ", ")));
}

void TableClient::check_rows(const RowsOfTable& wanted) const {
  if (wanted.table < 0 || wanted.table >= std::ssize(options_.plan.facts.tables))
    refuse_rows(fmt::format("table {} of {}", wanted.table, options_.plan.facts.tables.size()),
                "a table of the plan");
  const plan::TableSpec& spec = options_.plan.facts.tables[static_cast<size_t>(wanted.table)];
  if (!wanted.rows.defined() || wanted.rows.scalar_type() != at::kLong || wanted.rows.dim() != 1 ||
      !wanted.rows.is_contiguous())
    refuse_rows(fmt::format("rows of table '{}' are no contiguous int64 [n]", spec.name),
                "rows.to(at::kLong).flatten()");
  servers::check_rows(spec, row_numbers(wanted.rows), options_.worker);
}

std::vector<at::Tensor> TableClient::get(const std::vector<RowsOfTable>& wanted, bool peeks,
                                         Deadline deadline) {
  std::vector<at::Tensor> values;
  std::vector<std::vector<DealtRows>> dealt;  // [entry][server]
  for (const RowsOfTable& each : wanted) {
    check_rows(each);
    const int64_t width = options_.plan.facts.tables[static_cast<size_t>(each.table)].width;
    values.push_back(at::empty({each.rows.numel(), width}, at::kFloat));
    dealt.push_back(DealtRows::deal(options_.plan, each.table, each.rows));
  }
  // [server][entry]. Replies that are under way go before the memory that they are read into.
  std::vector<std::vector<at::Tensor>> places(servers_.size());
  std::vector<net::PendingReply> pending;
  for (size_t s = 0; s < servers_.size(); ++s) {
    const bool begins = !peeks && !servers_[s]->begun;
    net::Message message;
    TableRequest request{.call = TableCall::pull,
                         .worker = options_.worker,
                         .clock = servers_[s]->clock,
                         .begins = begins,
                         .peeks = peeks};
    net::Places memory;
    for (size_t i = 0; i < wanted.size(); ++i) {
      request.tables.push_back(wanted[i].table);
      message.tensors.push_back(dealt[i][s].rows());
      places[s].push_back(dealt[i][s].place_in(values[i]));
      memory.push_back(bytes_of_values(places[s].back()));
    }
    message.header = servers::encode(request);
    pending.push_back(servers_[s]->client->start(message, net::into(std::move(memory)), deadline,
                                                 "pull of rows"));
  }
  for (size_t s = 0; s < servers_.size(); ++s) {
    const TableReply reply = servers::decode_table_reply(pending[s].wait(deadline).header);
    version_ = std::max(version_, reply.version);
    for (size_t i = 0; i < wanted.size(); ++i) dealt[i][s].spread(places[s][i], values[i]);
    if (peeks) continue;
    servers_[s]->clock = reply.clock;
    servers_[s]->begun = true;
  }
  return values;
}

std::vector<at::Tensor> TableClient::pull(const std::vector<RowsOfTable>& wanted,
                                          Deadline deadline) {
  std::vector<at::Tensor> values = get(wanted, /*peeks=*/false, deadline);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i].set_requires_grad(true);
    pulled_.push_back({wanted[i].table, wanted[i].rows, values[i]});
  }
  return values;
}

std::vector<at::Tensor> TableClient::peek(const std::vector<RowsOfTable>& wanted,
                                          Deadline deadline) {
  return get(wanted, /*peeks=*/true, deadline);
}

// One entry for each table. The values become the gradients; those of a row that was pulled more
// than once are added up.
std::vector<TableClient::Pulled> TableClient::gradients() const {
  std::map<int, std::vector<const Pulled*>> by_table;
  for (const Pulled& each : pulled_)
    if (each.values.grad().defined()) by_table[each.table].push_back(&each);
  std::vector<Pulled> all;
  for (const auto& [table, entries] : by_table) {
    const plan::TableSpec& spec = options_.plan.facts.tables[static_cast<size_t>(table)];
    servers::RowSums sums(spec.width);
    for (const Pulled* entry : entries) {
      const at::Tensor gradient = entry->values.grad().contiguous();
      const servers::RowGradients rows{static_cast<size_t>(table), spec.width,
                                       row_numbers(entry->rows), gradient.const_data_ptr<float>()};
      servers::check_finite(spec, rows, options_.worker);
      if (entries.size() == 1)
        all.push_back({table, entry->rows, gradient});
      else
        sums.add(rows);
    }
    if (entries.size() == 1) continue;
    const auto rows = std::ssize(sums.rows());
    Pulled sum{table, at::empty({rows}, at::kLong), at::empty({rows, spec.width}, at::kFloat)};
    std::ranges::copy(sums.rows(), sum.rows.mutable_data_ptr<int64_t>());
    std::copy_n(sums.gradients(), sum.values.numel(), sum.values.mutable_data_ptr<float>());
    all.push_back(std::move(sum));
  }
  return all;
}

int64_t TableClient::push(int64_t samples, Deadline deadline) {
  // A step without a pull begins here, so that it waits like any other.
  const auto has_begun = [](const auto& server) { return server->begun; };
  if (!std::ranges::all_of(servers_, has_begun)) get({}, /*peeks=*/false, deadline);
  const std::vector<Pulled> all = samples > 0 ? gradients() : std::vector<Pulled>();
  std::vector<std::vector<DealtRows>> dealt;  // [entry][server]
  for (const Pulled& each : all)
    dealt.push_back(DealtRows::deal(options_.plan, each.table, each.rows));
  std::vector<net::PendingReply> pending;
  for (size_t s = 0; s < servers_.size(); ++s) {
    net::Message message;
    TableRequest request{.call = TableCall::push,
                         .worker = options_.worker,
                         .clock = servers_[s]->clock,
                         .samples = samples};
    std::vector<at::Tensor> parts;  // They live until start() has sent them.
    for (size_t i = 0; i < all.size(); ++i) {
      if (dealt[i][s].count() == 0) continue;
      request.tables.push_back(all[i].table);
      const at::Tensor& part = parts.emplace_back(dealt[i][s].part_of(all[i].values));
      message.tensors.push_back(dealt[i][s].rows());
      message.tensors.push_back(
          {{"", "float32", part.sizes().vec(), part.nbytes()}, part.const_data_ptr()});
    }
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

void TableClient::forget() { pulled_.clear(); }

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
