// A worker's side of parameter servers: the state for checkpoints, between pieces on the servers
// and whole tensors here.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <trireme/base/error.h>
#include <trireme/parallel/servers/server_client_impl.h>
#include <trireme/parallel/servers/server_shard.h>
#include <algorithm>
#include <map>
#include <string>

namespace trireme {
namespace {

using servers::ServerCall;
using servers::ServerReply;
using servers::ServerRequest;

// "exp_avg/conv1.weight[0:4096]": the part "exp_avg" of a piece. Empty for the piece itself.
std::string state_part_of(const std::string& name) {
  const size_t slash = name.find('/');
  return slash == std::string::npos ? "" : name.substr(0, slash);
}

}  // namespace

// The whole tensors of an optimizer's state, by name, as its pieces come.
class ServerClient::WholeState {
 public:
  explicit WholeState(const std::vector<NamedTensor>& parameters) : parameters_(parameters) {}

  const at::Tensor& tensor(const std::string& part, int parameter) {
    const NamedTensor& whole = parameters_[static_cast<size_t>(parameter)];
    at::Tensor& tensor = tensors_[part + "/" + whole.name];
    if (!tensor.defined()) tensor = at::zeros_like(whole.tensor.detach());
    return tensor;
  }
  std::vector<NamedTensor> take() {
    std::vector<NamedTensor> all;
    for (auto& [name, tensor] : tensors_) all.push_back({name, tensor});
    return all;
  }

 private:
  const std::vector<NamedTensor>& parameters_;
  std::map<std::string, at::Tensor> tensors_;
};

OptimizerState ServerClient::read_state(Deadline deadline) {
  const at::NoGradGuard no_grad;
  return chains_.without_the_lost(deadline, [&] {
    OptimizerState state;
    WholeState whole(parameters_);
    for (Link* const link : chains_.firsts()) read_pieces(*link, state, whole, deadline);
    state.tensors = whole.take();
    return state;
  });
}

void ServerClient::read_pieces(Link& link, OptimizerState& state, WholeState& whole,
                               Deadline deadline) {
  std::map<std::string, const plan::ServerPiece*> pieces;
  for (const plan::ServerPiece& piece : pieces_of(link.shard))
    pieces[servers::name_of(options_.placement, piece)] = &piece;
  const auto places = [&](const net::Head& head) {
    net::Places all;
    for (const net::TensorNote& note : head.tensors) {
      const std::string part = state_part_of(note.name);
      const plan::ServerPiece& piece =
          *pieces.at(part.empty() ? note.name : note.name.substr(part.size() + 1));
      const at::Tensor& tensor = part.empty()
                                     ? parameters_[static_cast<size_t>(piece.tensor)].tensor
                                     : whole.tensor(part, piece.tensor);
      all.emplace_back(servers::bytes_at(tensor, piece), note.bytes);
    }
    return all;
  };
  const net::Message request{encode(request_of(ServerCall::read, link)), {}};
  const net::Reply reply = chains_.ask(
      "state", {&link}, [&](const Link&) { return request; }, [&](const Link&) { return places; },
      deadline)[0];
  const ServerReply told = servers::decode_reply(reply.header);
  take_parameters(link, told);
  const Json head = Json::parse(told.text);
  if (!head.at("kind").get<std::string>().empty()) state.kind = head["kind"];
  for (const auto& [part, by_piece] : head.at("counters").items())
    for (const auto& [name, piece] : pieces)
      if (by_piece.contains(name)) {
        Json& own = state.counters[part][parameters_[static_cast<size_t>(piece->tensor)].name];
        own = std::max(own.is_null() ? int64_t{0} : own.get<int64_t>(),
                       by_piece[name].get<int64_t>());
      }
}

void ServerClient::write_state(const OptimizerState& state, Deadline deadline) {
  int64_t newest = newest_;
  for (const int64_t version : at_join_) newest = std::max(newest, version);
  for (const Link* const link : chains_.all()) newest = std::max(newest, link->told);
  std::map<std::string, at::Tensor> by_name;
  for (const NamedTensor& each : state.tensors) by_name[each.name] = each.tensor.contiguous();
  chains_.without_the_lost(deadline, [&] {
    ask("state", chains_.all(), deadline, [&](const Link& link) {
      net::Message message;
      Json counters = Json::object();
      for (const plan::ServerPiece& piece : pieces_of(link.shard)) {
        const NamedTensor& own = parameters_[static_cast<size_t>(piece.tensor)];
        const std::string name = servers::name_of(options_.placement, piece);
        message.tensors.push_back(servers::message_of(own.tensor, piece, name));
        for (const auto& [of_state, tensor] : by_name) {
          const std::string part = state_part_of(of_state);
          if (of_state.substr(part.size() + 1) == own.name)
            message.tensors.push_back(servers::message_of(tensor, piece, part + "/" + name));
        }
        for (const auto& [part, values] : state.counters.items())
          if (values.contains(own.name)) counters[part][name] = values[own.name];
      }
      ServerRequest request = request_of(ServerCall::write, link);
      const std::string text =
          Json{{"kind", state.kind}, {"counters", counters}, {"version", newest + 1}}.dump();
      request.text = text;
      message.header = encode(request);
      return message;
    });
  });
  for (Link* const link : chains_.all()) link->told = newest + 1;
}

void ServerClient::adopt(int server, const ServerPlace& place, Deadline deadline) {
  chains_.adopt(server, place, deadline);
  try {
    join(chains_.links_of(server), deadline);
  } catch (...) {
    chains_.drop(server);
    throw;
  }
}

// Workers that hear of a loss while they connect may have found other servers.
void ServerClient::use(const ServerPlaces& places, Deadline deadline) {
  const ServerPlaces own = in_use();
  for (int server = 0; server < chains_.shards(); ++server) {
    const auto& wanted = places[static_cast<size_t>(server)];
    const auto& mine = own[static_cast<size_t>(server)];
    const bool are_same = wanted && mine && wanted->incarnation == mine->incarnation;
    if (are_same) continue;
    if (mine) chains_.drop(server);
    if (!wanted) continue;
    try {
      adopt(server, *wanted, deadline);
    } catch (const Error&) {
      if (!chains_.is_lost(server, *wanted)) throw;
    }
  }
  chains_.require_all_chains();
}

// Some servers lack decisions that a lost worker took to others alone. A server that gets the
// pieces of those would lack the pushes too.
void ServerClient::bring_those_that_some_lack(Deadline deadline) {
  chains_.without_the_lost(deadline, [&] {
    ServerRequest request = request_of(ServerCall::decisions, chains_.first(0));
    request.follows = told_to_all();
    bring_from(ask_one("decisions", chains_.first(0), deadline, {encode(request), {}}), deadline);
  });
}

void ServerClient::restore(int server, const ServerPlace& place, Deadline deadline) {
  bring_those_that_some_lack(deadline);
  adopt(server, place, deadline);
  try {
    for (Link* const link : chains_.links_of(server))
      for (const Link& other : chains_.chain(link->shard))
        if (other.server != server) {
          copy_pieces(other, *link, deadline);
          break;
        }
    ask("end of a restore", chains_.links_of(server), deadline, [&](const Link& link) {
      return net::Message{encode(request_of(ServerCall::restored, link)), {}};
    });
  } catch (...) {
    chains_.drop(server);
    throw;
  }
}

// The bytes pass through this process, as they are.
void ServerClient::copy_pieces(const Link& from, Link& to, Deadline deadline) {
  std::vector<std::vector<std::byte>> memory;
  const auto places = [&](const net::Head& head) {
    net::Places all;
    for (const net::TensorNote& note : head.tensors)
      all.emplace_back(memory.emplace_back(note.bytes).data(), note.bytes);
    return all;
  };
  const std::vector<int> chain = options_.placement.chain(to.shard);
  const auto place = std::ranges::find(chain, to.server) - chain.begin();
  const std::string wish = Json{{"place", place}}.dump();
  ServerRequest request = request_of(ServerCall::read, from);
  request.text = wish;
  const net::Message read{encode(request), {}};
  Link source = from;
  const net::Reply reply = chains_.ask(
      "state of a chain", {&source}, [&](const Link&) { return read; },
      [&](const Link&) { return places; }, deadline)[0];
  const ServerReply told = servers::decode_reply(reply.header);
  Json head = Json::parse(told.text);
  head["version"] = told.version;
  const std::string text = head.dump();
  request = request_of(ServerCall::write, to);
  request.text = text;
  net::Message write{encode(request), {}};
  for (size_t i = 0; i < reply.tensors.size(); ++i)
    write.tensors.push_back({reply.tensors[i], memory[i].data()});
  ask_one("state of a chain", to, deadline, std::move(write));
  copy_rows(from, to, deadline.allowed());
  to.told = told.version;
}

}  // namespace trireme
