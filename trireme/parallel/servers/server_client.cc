#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/server_client_impl.h>

namespace trireme {

using servers::message_of;
using servers::ServerCall;
using servers::ServerReply;
using servers::ServerRequest;

namespace {

// Between two looks at the job while a call waits for other workers.
constexpr int kLookMilliseconds = 100;

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

std::string told_model(const ServerClientOptions& options) {
  Json tensors = Json::array();
  for (const plan::TensorSpec& tensor : options.placement.facts.tensors)
    tensors.push_back(servers::told_form(tensor));
  Json model = {{"tensors", std::move(tensors)}, {"placement", options.placement.digest()}};
  if (options.workers > 0) model["workers"] = options.workers;
  return model.dump();
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
  for (size_t i = 0; i < servers.size(); ++i) {
    servers_.push_back(std::make_unique<Server>());
    servers_[i]->client =
        std::make_unique<net::RequestClient>(servers[i], token, deadline, options_.channel);
    for (const plan::ServerPiece& piece : options_.placement.pieces)
      if (piece.server == static_cast<int>(i)) servers_[i]->pieces.push_back(piece);
  }
  const std::string model = told_model(options_);
  const auto replies = ask_all("join", 0, deadline, [&](size_t i) {
    ServerRequest request = request_of(ServerCall::join, i);
    request.text = model;
    return net::Message{encode(request), {}};
  });
  for (size_t i = 0; i < replies.size(); ++i) {
    const ServerReply told = servers::decode_reply(replies[i].header);
    at_join_.push_back(told.version);
    if (i == 0) clock_ = told.clock;
  }
}

ServerClient::~ServerClient() = default;

bool ServerClient::has_lost_a_server() const {
  return std::ranges::any_of(servers_, [](const auto& each) { return each->client->is_lost(); });
}

ServerRequest ServerClient::request_of(ServerCall call, size_t server) const {
  return {.call = call,
          .worker = options_.worker,
          .generation = options_.generation,
          .clock = clock_,
          .known = versions_[server]};
}

// The places of a server's pieces in the parameters' own memory.
net::ChoosePlaces ServerClient::parameters_of(size_t server) const {
  return [this, server](const net::Head& head) {
    net::Places places;
    if (head.tensors.empty()) return places;
    for (const plan::ServerPiece& piece : servers_[server]->pieces) {
      const at::Tensor& tensor = parameters_[static_cast<size_t>(piece.tensor)].tensor;
      places.emplace_back(servers::bytes_at(tensor, piece),
                          static_cast<size_t>(piece.count * tensor.element_size()));
    }
    return places;
  };
}

// The first server decides whose values count, so that all values are those of one worker.
void ServerClient::initialise(Deadline deadline) {
  for (size_t i = 0; i < servers_.size(); ++i) {
    net::Message message{encode(request_of(ServerCall::initialise, i)), {}};
    for (const plan::ServerPiece& piece : servers_[i]->pieces)
      message.tensors.push_back(
          message_of(parameters_[static_cast<size_t>(piece.tensor)].tensor, piece));
    const net::Reply reply =
        servers_[i]->client->call(message, net::Places{}, deadline, "first values");
    if (i == 0 && servers::decode_reply(reply.header).is_unchanged) return;
  }
}

net::Message ServerClient::gradients_for(size_t server, ServerRequest request,
                                         const std::string& text) const {
  request.text = text;
  net::Message message{encode(request), {}};
  for (const plan::ServerPiece& piece : servers_[server]->pieces) {
    const at::Tensor& gradient = parameters_[static_cast<size_t>(piece.tensor)].tensor.grad();
    message.tensors.push_back(request.samples > 0 && gradient.defined()
                                  ? message_of(gradient, piece)
                                  : net::Message::Tensor{});
  }
  return message;
}

void ServerClient::take_parameters(size_t server, const ServerReply& told) {
  versions_[server] = told.version;
  if (told.is_unchanged) return;
  for (const plan::ServerPiece& piece : servers_[server]->pieces)
    parameters_[static_cast<size_t>(piece.tensor)]
        .tensor.unsafeGetTensorImpl()
        ->bump_version();  // Autograd did not see the write.
}

// Server 0 answers early where the worker has to wait, so that this side can look at the job.
Json ServerClient::pull_from_clock(net::Message message, const std::string& wish,
                                   Deadline deadline) {
  for (;;) {
    const net::Reply reply =
        servers_[0]->client->call(message, parameters_of(0), deadline, "push and pull");
    const ServerReply told = servers::decode_reply(reply.header);
    if (!told.is_early) {
      take_parameters(0, told);
      clock_ = told.clock;
      const Json text = told.text.empty() ? Json::object() : Json::parse(told.text);
      if (servers_.size() > 1) bring(text.at("updates"), deadline);
      return text;
    }
    if (options_.look) options_.look();
    if (deadline.expired()) throw Error(ErrorCode::timeout, "parallel", told.text);
    ServerRequest again = waiting_request(ServerCall::pull);
    again.clock = told.clock;
    again.text = wish;
    message = {encode(again), {}};
  }
}

// The others make the updates that server 0 has decided on.
void ServerClient::bring(const Json& updates, Deadline deadline) {
  const auto replies = ask_all("decisions", 1, deadline, [&](size_t i) {
    Json newer = Json::array();
    for (const Json& update : updates)
      if (update.at(0).get<int64_t>() > version_of(i)) newer.push_back(update);
    ServerRequest request = request_of(ServerCall::follow, i);
    const std::string text = newer.empty() ? "" : Json{{"updates", std::move(newer)}}.dump();
    request.text = text;
    return net::Message{encode(request), {}};
  });
  for (size_t i = 0; i < replies.size(); ++i)
    take_parameters(i + 1, servers::decode_reply(replies[i].header));
}

// Once the others have the gradients, the decision of server 0 is all that is missing.
void ServerClient::hold_at_others(int64_t samples, Deadline deadline) {
  if (servers_.size() == 1) return;
  ask_all("push", 1, deadline, [&](size_t i) {
    ServerRequest request = request_of(ServerCall::hold, i);
    request.samples = samples;
    return gradients_for(i, request);
  });
}

namespace {

Json wish_of(const TurnWish& wish) {
  Json json = {{"round", true}, {"seen", wish.seen}};
  if (wish.stop) json["stop"] = true;
  if (wish.regroup) json["regroup"] = true;
  return json;
}

}  // namespace

ServerRequest ServerClient::waiting_request(ServerCall call) const {
  ServerRequest request = request_of(call, 0);
  if (options_.look) request.wait_ms = kLookMilliseconds;
  for (size_t i = 1; i < servers_.size(); ++i)
    request.follows = i == 1 ? version_of(i) : std::min(request.follows, version_of(i));
  return request;
}

int64_t ServerClient::pull(Deadline deadline) {
  pull_from_clock({encode(waiting_request(ServerCall::pull)), {}}, {}, deadline);
  return clock_;
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
  hold_at_others(samples, deadline);
  ServerRequest request = request_of(ServerCall::push, 0);
  request.samples = samples;
  servers_[0]->client->call(gradients_for(0, request), net::Places{}, deadline, "push");
  ++clock_;
}

int64_t ServerClient::push_pull(int64_t samples, Deadline deadline) {
  prepare_gradients(samples);
  hold_at_others(samples, deadline);
  ServerRequest request = waiting_request(ServerCall::push_pull);
  request.samples = samples;
  pull_from_clock(gradients_for(0, request), {}, deadline);
  return clock_;
}

void ServerClient::leave(Deadline deadline) {
  servers_[0]->client->call({encode(request_of(ServerCall::leave, 0)), {}}, net::Places{},
                            deadline, "leave");
}

void ServerClient::hold(int64_t samples, Deadline deadline) {
  for (NamedTensor& parameter : parameters_)
    if (at::Tensor& gradient = parameter.tensor.mutable_grad(); gradient.defined())
      gradient = gradient.contiguous();
  ask_all("push", 0, deadline, [&](size_t i) {
    ServerRequest request = request_of(ServerCall::hold, i);
    request.clock = versions_[0] + 1;
    request.samples = samples;
    return gradients_for(i, request);
  });
}

servers::ServerUpdate ServerClient::next_update(int workers) const {
  servers::ServerUpdate update{versions_[0] + 1, {}, {}, 1};
  for (int worker = 0; worker < workers; ++worker)
    update.pushes.push_back({options_.generation, worker, update.number});
  return update;
}

double ServerClient::squares(const servers::ServerUpdate& update, Deadline deadline) {
  const std::string text = Json{{"update", to_json(update)}}.dump();
  double sum = 0;
  for (const net::Reply& reply : ask_all("norm", 0, deadline, [&](size_t i) {
         ServerRequest request = request_of(ServerCall::measure, i);
         request.text = text;
         return net::Message{encode(request), {}};
       }))
    sum += Json::parse(servers::decode_reply(reply.header).text).at("squares").get<double>();
  return sum;
}

void ServerClient::follow(const servers::ServerUpdate& update, Deadline deadline) {
  const std::string text = Json{{"updates", Json::array({to_json(update)})}}.dump();
  const auto replies = ask_all("update", 0, deadline, [&](size_t i) {
    ServerRequest request = request_of(ServerCall::follow, i);
    request.text = text;
    return net::Message{encode(request), {}};
  });
  for (size_t i = 0; i < replies.size(); ++i)
    take_parameters(i, servers::decode_reply(replies[i].header));
}

void ServerClient::refresh(Deadline deadline) {
  const auto replies = ask_all("parameters", 0, deadline, [&](size_t i) {
    return net::Message{encode(request_of(ServerCall::follow, i)), {}};
  });
  for (size_t i = 0; i < replies.size(); ++i)
    take_parameters(i, servers::decode_reply(replies[i].header));
}

void ServerClient::open_round(int64_t id, int64_t leases, Deadline deadline) {
  ServerRequest request = request_of(ServerCall::open_round, 0);
  const std::string text = Json{{"id", id}, {"leases", leases}}.dump();
  request.text = text;
  servers_[0]->client->call({encode(request), {}}, net::Places{}, deadline, "round");
}

ServerTurn ServerClient::first_turn(const TurnWish& wish, Deadline deadline) {
  const std::string text = wish_of(wish).dump();
  ServerRequest request = waiting_request(ServerCall::pull);
  request.text = text;
  return turn_in(pull_from_clock({encode(request), {}}, text, deadline));
}

ServerTurn ServerClient::next_turn(const DoneLease& done, int64_t samples, const TurnWish& wish,
                                   Deadline deadline) {
  prepare_gradients(samples);
  hold_at_others(samples, deadline);
  Json text = wish_of(wish);
  const std::string again = text.dump();
  text["lease"] = done.lease;
  text["loss"] = done.loss;
  text["rates"] = done.rates;
  ServerRequest request = waiting_request(ServerCall::push_pull);
  request.samples = samples;
  return turn_in(pull_from_clock(gradients_for(0, request, text.dump()), again, deadline));
}

void ServerClient::skip(int64_t lease, int64_t samples, Deadline deadline) {
  ServerRequest request = request_of(ServerCall::skip, 0);
  const std::string text = Json{{"lease", lease}}.dump();
  request.text = text;
  request.samples = samples;
  servers_[0]->client->call({encode(request), {}}, net::Places{}, deadline, "skipped batch");
}

ServerTurn ServerClient::turn_in(const Json& told) const {
  ServerTurn turn;
  if (told.contains("lease"))
    turn.lease = told["lease"].get<int64_t>();
  else
    turn.limit = told.at("limit"), turn.stop = told.at("stop"), turn.regroup = told.at("regroup");
  turn.has_more = told.at("more");
  for (const Json& each : told.at("counted"))
    turn.counted.push_back(
        {each.at(0), each.at(1),
         each.at(2).is_null() ? std::nullopt : std::optional(each.at(2).get<double>()),
         each.at(3)});
  return turn;
}

std::vector<Json> ServerClient::facts(Deadline deadline) {
  std::vector<Json> all;
  for (const net::Reply& reply : ask_all("facts", 0, deadline, [&](size_t i) {
         return net::Message{encode(request_of(ServerCall::facts, i)), {}};
       }))
    all.push_back(Json::parse(servers::decode_reply(reply.header).text));
  return all;
}

}  // namespace trireme
