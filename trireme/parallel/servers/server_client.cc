#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/servers/server_client.h>
#include <trireme/parallel/servers/server_wire.h>
#include <algorithm>
#include <utility>

namespace trireme {

using servers::ServerCall;
using servers::ServerReply;
using servers::ServerRequest;

struct ServerClient::Server {
  std::unique_ptr<net::RequestClient> client;
  std::vector<plan::ServerPiece> pieces;
  int64_t clock = 0;  // The step to push next.
};

namespace {

[[noreturn]] void refuse_parameters(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, "the parameters of the placement");
}

void check_parameters(const plan::PlacementPlan& placement,
                      const std::vector<NamedTensor>& parameters) {
  const auto& wanted = placement.facts.tensors;
  if (wanted.size() != parameters.size())
    refuse_parameters(fmt::format("the placement has {} tensors, and the model {}", wanted.size(),
                                  parameters.size()));
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [name, tensor] = parameters[i];
    if (wanted[i].name != name || wanted[i].shape != tensor.sizes().vec() ||
        wanted[i].dtype != to_stored(tensor.scalar_type()))
      refuse_parameters(fmt::format("the placement has {}, and the model '{}' instead",
                                    wanted[i].describe(), name));
    if (!tensor.is_contiguous() || !tensor.is_cpu())
      refuse_parameters(fmt::format("'{}' is not contiguous memory of the CPU", name));
  }
}

std::byte* bytes_at(const at::Tensor& tensor, const plan::ServerPiece& piece) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr()) + piece.from * tensor.element_size();
}

net::Message::Tensor message_of(const at::Tensor& tensor, const plan::ServerPiece& piece) {
  const auto bytes = static_cast<uint64_t>(piece.count * tensor.element_size());
  return {
      {"", std::string(plan::to_string(to_stored(tensor.scalar_type()))), {piece.count}, bytes},
      bytes_at(tensor, piece)};
}

}  // namespace

ServerClient::ServerClient(const std::vector<net::Endpoint>& servers, const std::string& token,
                           ServerClientOptions options, std::vector<NamedTensor> parameters,
                           Deadline deadline)
    : options_(std::move(options)),
      parameters_(std::move(parameters)),
      versions_(servers.size(), -1) {
  check_parameters(options_.placement, parameters_);
  if (std::ssize(servers) != options_.placement.facts.servers)
    refuse_parameters(fmt::format("the placement has {} servers, and {} addresses are given",
                                  options_.placement.facts.servers, servers.size()));
  Json tensors = Json::array();
  for (const plan::TensorSpec& tensor : options_.placement.facts.tensors)
    tensors.push_back(servers::told_form(tensor));
  const std::string model =
      Json{{"tensors", std::move(tensors)}, {"placement", options_.placement.digest()}}.dump();
  for (size_t i = 0; i < servers.size(); ++i) {
    servers_.push_back(std::make_unique<Server>());
    servers_[i]->client =
        std::make_unique<net::RequestClient>(servers[i], token, deadline, options_.channel);
    for (const plan::ServerPiece& piece : options_.placement.pieces)
      if (piece.server == static_cast<int>(i)) servers_[i]->pieces.push_back(piece);
  }
  ask_all(
      "join", deadline,
      [&](size_t) {
        return net::Message{
            servers::encode(ServerRequest{ServerCall::join, options_.worker, 0, 0, -1, model}),
            {}};
      },
      [&](size_t i, const net::Reply& reply) {
        servers_[i]->clock = servers::decode_reply(reply.header).clock;
      });
}

ServerClient::~ServerClient() = default;

template <typename Make, typename Take>
void ServerClient::ask_all(const char* name, Deadline deadline, const Make& make,
                           const Take& take) {
  std::vector<net::PendingReply> pending;
  for (size_t i = 0; i < servers_.size(); ++i)
    pending.push_back(servers_[i]->client->start(make(i), parameters_of(i), deadline, name));
  // Nothing is taken unless all have answered, so that the same call can be made again.
  std::vector<net::Reply> replies;
  for (net::PendingReply& each : pending) replies.push_back(each.wait(deadline));
  for (size_t i = 0; i < servers_.size(); ++i) take(i, replies[i]);
}

// The places of a server's pieces in the parameters' own memory.
net::ChoosePlaces ServerClient::parameters_of(size_t server) const {
  return [this, server](const net::Head& head) {
    net::Places places;
    if (head.tensors.empty()) return places;
    for (const plan::ServerPiece& piece : servers_[server]->pieces) {
      const at::Tensor& tensor = parameters_[static_cast<size_t>(piece.tensor)].tensor;
      places.emplace_back(bytes_at(tensor, piece),
                          static_cast<size_t>(piece.count * tensor.element_size()));
    }
    return places;
  };
}

// The first server decides whose values count, so that all values are those of one worker.
void ServerClient::initialise(Deadline deadline) {
  for (size_t i = 0; i < servers_.size(); ++i) {
    net::Message message{
        servers::encode(ServerRequest{ServerCall::initialise, options_.worker, 0, 0, -1, {}}), {}};
    for (const plan::ServerPiece& piece : servers_[i]->pieces)
      message.tensors.push_back(
          message_of(parameters_[static_cast<size_t>(piece.tensor)].tensor, piece));
    const net::Reply reply =
        servers_[i]->client->call(message, net::Places{}, deadline, "first values");
    if (i == 0 && servers::decode_reply(reply.header).is_unchanged) return;
  }
}

net::Message ServerClient::gradients_for(size_t server, int64_t samples, bool pulls) const {
  const Server& to = *servers_[server];
  net::Message message{
      servers::encode(ServerRequest{pulls ? ServerCall::push_pull : ServerCall::push,
                                    options_.worker,
                                    to.clock,
                                    samples,
                                    versions_[server],
                                    {}}),
      {}};
  for (const plan::ServerPiece& piece : to.pieces) {
    const at::Tensor& gradient = parameters_[static_cast<size_t>(piece.tensor)].tensor.grad();
    message.tensors.push_back(samples > 0 && gradient.defined() ? message_of(gradient, piece)
                                                                : net::Message::Tensor{});
  }
  return message;
}

int64_t ServerClient::take_parameters(size_t server, const net::Reply& reply) {
  const ServerReply told = servers::decode_reply(reply.header);
  versions_[server] = told.version;
  servers_[server]->clock = told.clock;
  if (!told.is_unchanged)
    for (const plan::ServerPiece& piece : servers_[server]->pieces)
      parameters_[static_cast<size_t>(piece.tensor)]
          .tensor.unsafeGetTensorImpl()
          ->bump_version();  // Autograd did not see the write.
  return told.clock;
}

int64_t ServerClient::next_step() const {
  int64_t step = 0;
  for (const auto& server : servers_) step = std::max(step, server->clock);
  return step;
}

int64_t ServerClient::pull(Deadline deadline) {
  ask_all(
      "pull", deadline,
      [&](size_t i) {
        return net::Message{
            servers::encode(ServerRequest{
                ServerCall::pull, options_.worker, servers_[i]->clock, 0, versions_[i], {}}),
            {}};
      },
      [&](size_t i, const net::Reply& reply) { take_parameters(i, reply); });
  return next_step();
}

// A server that refused a part of the gradients would leave the others with theirs.
void ServerClient::prepare_gradients(int64_t samples) {
  if (samples == 0) return;
  for (NamedTensor& parameter : parameters_) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) continue;
    gradient = gradient.contiguous();
    if (servers_.size() > 1 && !at::isfinite(gradient.sum()).item<bool>() &&
        !at::isfinite(gradient).all().item<bool>())
      throw Error(
          ErrorCode::corrupt, "parallel",
          fmt::format("the gradient of '{}' has values that are NaN or infinite", parameter.name),
          "a smaller learning rate, or train.clip_norm");
  }
}

void ServerClient::push(int64_t samples, Deadline deadline) {
  prepare_gradients(samples);
  ask_all(
      "push", deadline, [&](size_t i) { return gradients_for(i, samples, /*pulls=*/false); },
      [](size_t, const net::Reply&) {});
  for (const auto& server : servers_) ++server->clock;
}

int64_t ServerClient::push_pull(int64_t samples, Deadline deadline) {
  prepare_gradients(samples);
  ask_all(
      "push and pull", deadline,
      [&](size_t i) { return gradients_for(i, samples, /*pulls=*/true); },
      [&](size_t i, const net::Reply& reply) { take_parameters(i, reply); });
  return next_step();
}

void ServerClient::leave(Deadline deadline) {
  ask_all(
      "leave", deadline,
      [&](size_t) {
        return net::Message{
            servers::encode(ServerRequest{ServerCall::leave, options_.worker, 0, 0, -1, {}}), {}};
      },
      [](size_t, const net::Reply&) {});
}

}  // namespace trireme
