// A worker's side of parameter servers: the state for checkpoints, between pieces on the servers
// and whole tensors here.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <trireme/base/error.h>
#include <trireme/parallel/servers/server_client_impl.h>
#include <trireme/parallel/servers/server_shard.h>
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

// The whole tensors of an optimizer's state, by name, as its pieces come.
class WholeState {
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

}  // namespace

OptimizerState ServerClient::read_state(Deadline deadline) {
  const at::NoGradGuard no_grad;
  OptimizerState state;
  WholeState whole(parameters_);
  for (size_t i = 0; i < servers_.size(); ++i) {
    std::map<std::string, const plan::ServerPiece*> pieces;
    for (const plan::ServerPiece& piece : servers_[i]->pieces)
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
    const net::Reply reply = servers_[i]->client->call(
        {encode(request_of(ServerCall::read, i)), {}}, places, deadline, "state");
    const ServerReply told = servers::decode_reply(reply.header);
    take_parameters(i, told);
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
  state.tensors = whole.take();
  return state;
}

void ServerClient::write_state(const OptimizerState& state, Deadline deadline) {
  int64_t newest = 0;
  for (const std::vector<int64_t>* const each : {&versions_, &at_join_})
    newest = std::max(newest, *std::ranges::max_element(*each));
  std::map<std::string, at::Tensor> by_name;
  for (const NamedTensor& each : state.tensors) by_name[each.name] = each.tensor.contiguous();
  for (size_t i = 0; i < servers_.size(); ++i) {
    net::Message message;
    Json counters = Json::object();
    for (const plan::ServerPiece& piece : servers_[i]->pieces) {
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
    ServerRequest request = request_of(ServerCall::write, i);
    const std::string text =
        Json{{"kind", state.kind}, {"counters", counters}, {"version", newest + 1}}.dump();
    request.text = text;
    message.header = encode(request);
    servers_[i]->client->call(message, net::Places{}, deadline, "state");
  }
}

}  // namespace trireme
