// Parameter servers: state for checkpoints, and rounds of batches.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/servers/parameter_server_impl.h>
#include <cstring>
#include <map>
#include <utility>

namespace trireme {
namespace {

using servers::ServerReply;
using servers::ServerRequest;

net::Message::Tensor note_of(const NamedTensor& named) {
  return {{named.name, std::string(plan::to_string(to_stored(named.tensor.scalar_type()))),
           named.tensor.sizes().vec(), named.tensor.nbytes()},
          named.tensor.const_data_ptr()};
}

// The tensor in which a round travels: it may be too large for a header.
constexpr const char* kRound = "round";

at::Tensor as_bytes(const Json& json) {
  const std::string text = json.dump();
  const at::Tensor bytes = at::empty({std::ssize(text)}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

}  // namespace

Json ParameterServer::Impl::to_json(const Round& round) {
  return {{"id", round.id},
          {"leases", round.leases.to_json()},
          {"counted", round.counted},
          {"stops", round.stops},
          {"regroups", round.regroups}};
}

ParameterServer::Impl::Round ParameterServer::Impl::round_in(const at::Tensor& bytes) {
  const auto* const text = bytes.const_data_ptr<uint8_t>();
  const Json json = Json::parse(text, text + bytes.numel());
  return {json.at("id"), plan::LeaseTable::from_json(json.at("leases")), json.at("counted"),
          json.at("stops"), json.at("regroups")};
}

// The state is copied first, so that it is that of one version, and updates do not wait for the
// reader. Another server of the chain needs the clock too.
void ParameterServer::Impl::read_state(const Json& wish, net::Responder& responder) {
  std::vector<NamedTensor> tensors;
  Json head;
  ServerReply reply;
  {
    const at::NoGradGuard no_grad;
    const std::lock_guard lock(mutex);
    const OptimizerState state = shard.optimizer_state();
    head = {{"kind", state.kind}, {"counters", state.counters}};
    if (wish.contains("place")) {
      head["clock"] = {{"clock", clock.to_json()}, {"term", term}, {"facts", facts.to_json()}};
      acts_as_first = acts_as_first && place < wish["place"].get<int>();
    }
    for (const NamedTensor& each : shard.parameters())
      tensors.push_back({each.name, each.tensor.detach().clone()});
    for (const NamedTensor& each : state.tensors)
      tensors.push_back({each.name, each.tensor.detach().clone()});
    if (wish.contains("place")) tensors.push_back({kRound, as_bytes(to_json(round))});
    reply.version = version;
    reply.compensates = compensates;
  }
  reply.text = head.dump();
  net::Message message{encode(reply), {}};
  for (const NamedTensor& each : tensors) message.tensors.push_back(note_of(each));
  responder.reply(message);
}

void ParameterServer::Impl::write_state(const net::Request& message, const Json& text) {
  std::map<std::string, at::Tensor> by_name;
  OptimizerState state{text.at("kind"), {}, text.at("counters")};
  for (size_t i = 0; i < message.tensors.size(); ++i) {
    const net::TensorNote& note = message.head.tensors[i];
    by_name[note.name] =
        at::from_blob(message.tensors[i].data(), note.shape,
                      at::TensorOptions(to_torch(plan::dtype_from_string(note.dtype))));
  }
  for (const NamedTensor& own : shard.parameters()) {
    const auto found = by_name.find(own.name);
    if (found == by_name.end() || found->second.numel() != own.tensor.numel() ||
        found->second.scalar_type() != own.tensor.scalar_type())
      throw Error(ErrorCode::invalid_argument, "parallel",
                  fmt::format("new values for server {} that lack '{}'", options.server, own.name),
                  "the same model and number of servers everywhere");
  }
  const at::NoGradGuard no_grad;
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < shard.size(); ++i) {
    const auto own = by_name.extract(shard.parameters()[i].name);
    std::memcpy(shard.data(i), own.mapped().const_data_ptr(), shard.bytes(i));
  }
  const auto round_of_chain = by_name.extract(kRound);
  for (auto& [name, tensor] : by_name) state.tensors.push_back({name, tensor});
  if (!state.kind.empty()) shard.load_optimizer_state(state);
  has_values = true;
  being_restored = text.contains("clock");
  version = text.at("version");
  values_version = -1;
  tables.clear();
  rows_version = version;
  term = 0;
  is_clock = owner == 0 && place == 0;
  if (text.contains("clock")) {
    clock = plan::PushClock::from_json(text["clock"].at("clock"));
    term = text["clock"].at("term");
    is_clock = false;  // A worker that calls it as the clock begins a new term.
    facts = ParameterServerFacts::from_json(text["clock"].at("facts"));
    facts.failovers = 0;
  }
  term_from = version;
  held.clear();
  gathered.clear();
  decided.clear();
  pulled.clear();
  round = round_of_chain.empty() ? Round() : round_in(round_of_chain.mapped());
}

ServerReply ParameterServer::Impl::open_round(const ServerRequest& request) {
  const Json wish = Json::parse(request.text);
  const int64_t id = wish.at("id");
  const std::lock_guard lock(mutex);
  if (id < round.id)
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("worker {} begins round {}, and round {} has begun", request.worker,
                            id, round.id),
                "the same training everywhere");
  if (id > round.id) round = {id, plan::LeaseTable(wish.at("leases").get<int64_t>())};
  return {.version = version};
}

void ParameterServer::Impl::skip(const ServerRequest& request) {
  const Json told = Json::parse(request.text);
  const std::lock_guard lock(mutex);
  const int64_t lease = told.at("lease");
  if (!round.leases.claim(request.worker, lease)) return;  // This call was made before.
  servers::ServerUpdate decision;
  decision.counted = {{lease, request.worker, std::nullopt, request.samples}};
  decide(std::move(decision));
  end_round_if_last();
}

}  // namespace trireme
