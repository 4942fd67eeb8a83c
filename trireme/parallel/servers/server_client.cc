#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/server_client_early.h>
#include <trireme/parallel/servers/server_client_impl.h>
#include <set>

namespace trireme {

using servers::message_of;
using servers::ServerCall;
using servers::ServerReply;
using servers::ServerRequest;

namespace {

[[noreturn]] void refuse_parameters(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, "the parameters of the placement");
}

std::vector<NamedTensor> checked(const plan::PlacementPlan& placement,
                                 std::vector<NamedTensor> parameters, size_t servers) {
  if (static_cast<int>(servers) != placement.facts.servers)
    refuse_parameters(fmt::format("the placement has {} servers, and {} addresses are given",
                                  placement.facts.servers, servers));
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
  return parameters;
}

std::string told_model(const ServerClientOptions& options) {
  Json tensors = Json::array();
  for (const plan::TensorSpec& tensor : options.placement.facts.tensors)
    tensors.push_back(servers::told_form(tensor));
  Json model = {{"tensors", std::move(tensors)}, {"placement", options.placement.digest()}};
  if (options.workers > 0) model["workers"] = options.workers;
  if (!options.tables.facts.tables.empty()) model["tables"] = options.tables.to_json();
  return model.dump();
}

}  // namespace

ServerClient::ServerClient(const ServerPlaces& servers, const std::string& token,
                           ServerClientOptions options, std::vector<NamedTensor> parameters,
                           Deadline deadline)
    : options_(std::move(options)),
      parameters_(checked(options_.placement, std::move(parameters), servers.size())),
      chains_(options_.placement, servers, token, options_.channel, options_.is_lost,
              options_.why_lost, options_.look, deadline),
      pieces_(servers.size()),
      numbers_(servers.size()) {
  const auto& pieces = options_.placement.pieces;
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces_[static_cast<size_t>(pieces[i].server)].push_back(pieces[i]);
    numbers_[static_cast<size_t>(pieces[i].server)].push_back(i);
  }
  if (options_.compression.name != "none")
    compressed_.emplace(options_.compression, options_.placement);
  chains_.without_the_lost(deadline, [&] { join(chains_.all(), deadline); });
  leave_out_the_blank(deadline);
}

ServerClient::~ServerClient() = default;

void ServerClient::join(const std::vector<Link*>& links, Deadline deadline) {
  const std::string model = told_model(options_);
  const auto replies = ask("join", links, deadline, [&](const Link& link) {
    ServerRequest request = request_of(ServerCall::join, link);
    request.text = model;
    return net::Message{encode(request), {}};
  });
  for (size_t i = 0; i < links.size(); ++i) {
    const ServerReply told = servers::decode_reply(replies[i].header);
    links[i]->told = told.version;
    if (links[i]->shard == 0) clock_ = std::max(clock_, told.clock);
  }
}

// A process that has the task of a lost server has no state until a worker restores it. Before the
// first update, a server without values may be about to get them; after it, all have got them.
void ServerClient::leave_out_the_blank(Deadline deadline) {
  at_join_.assign(pieces_.size(), -1);
  std::set<int> blank;
  for (int shard = 0; shard < chains_.shards(); ++shard) {
    int64_t& newest = at_join_[static_cast<size_t>(shard)];
    for (const Link& link : chains_.chain(shard)) newest = std::max(newest, link.told);
    if (newest > 0) join_again_those_without_values(shard, deadline);
    for (const Link& link : chains_.chain(shard)) {
      has_a_blank_server_ = has_a_blank_server_ || (link.told == -1 && newest >= 0);
      if (link.told == -1 && newest > 0) blank.insert(link.server);
    }
  }
  // If nobody has some pieces, the state of the others is of no use, and all get another one.
  if (chains_.can_do_without(blank))
    for (const int server : blank) chains_.drop(server);
}

void ServerClient::join_again_those_without_values(int shard, Deadline deadline) {
  chains_.without_the_lost(deadline, [&] {
    std::vector<Link*> links;
    for (Link& link : chains_.chain(shard))
      if (link.told == -1) links.push_back(&link);
    join(links, deadline);
  });
}

ServerRequest ServerClient::request_of(ServerCall call, const Link& link) const {
  return {.call = call,
          .worker = options_.worker,
          .generation = options_.generation,
          .clock = clock_,
          .known = link.version,
          .shard = link.shard,
          .to_copy = &link != &chains_.chain(link.shard).front()};
}

const std::vector<plan::ServerPiece>& ServerClient::pieces_of(int shard) const {
  return pieces_[static_cast<size_t>(shard)];
}

// The places of a server's pieces in the parameters' own memory.
net::ChoosePlaces ServerClient::parameters_of(const Link& link) const {
  return [this, shard = link.shard](const net::Head& reply) {
    net::Places places;
    if (reply.tensors.empty()) return places;
    for (const plan::ServerPiece& piece : pieces_of(shard)) {
      const at::Tensor& tensor = parameters_[static_cast<size_t>(piece.tensor)].tensor;
      places.emplace_back(servers::bytes_at(tensor, piece),
                          static_cast<size_t>(piece.count * tensor.element_size()));
    }
    return places;
  };
}

std::vector<net::Reply> ServerClient::ask(const char* name, const std::vector<Link*>& whom,
                                          Deadline deadline,
                                          const servers::ServerChains::Make& make,
                                          const servers::ServerChains::Rides& rides) {
  return chains_.ask(
      name, whom, make, [this](const Link& link) { return parameters_of(link); }, deadline, rides);
}

net::Reply ServerClient::ask_one(const char* name, Link& whom, Deadline deadline,
                                 net::Message message) {
  return ask(name, {&whom}, deadline, [&](const Link&) { return std::move(message); })[0];
}

// One server decides whose values count, so that all values are those of one worker. Copies get
// them before those that answer pulls, so that no update comes to a copy without values.
void ServerClient::initialise(Deadline deadline) {
  const auto values_for = [&](const Link& link) {
    net::Message message{encode(request_of(ServerCall::initialise, link)), {}};
    for (const plan::ServerPiece& piece : pieces_of(link.shard))
      message.tensors.push_back(
          message_of(parameters_[static_cast<size_t>(piece.tensor)].tensor, piece));
    return message;
  };
  bool are_ours = false;  // A call that is made again finds its own values.
  chains_.without_the_lost(deadline, [&] {
    Link& judge = chains_.first(0);
    const net::Reply reply = ask_one("first values", judge, deadline, values_for(judge));
    are_ours = are_ours || !servers::decode_reply(reply.header).is_unchanged;
    if (!are_ours) return;
    ask("first values", chains_.all_copies(), deadline, values_for);
    std::vector<Link*> others = chains_.firsts();
    others.erase(others.begin());
    ask("first values", others, deadline, values_for);
  });
}

net::Message::Tensor ServerClient::gradient_of(int server, size_t piece) const {
  const plan::ServerPiece& place = pieces_of(server)[piece];
  const at::Tensor& gradient = parameters_[static_cast<size_t>(place.tensor)].tensor.grad();
  if (!gradient.defined()) return {};
  if (!compressed_) return message_of(gradient, place);
  const auto code = compressed_->of(numbers_[static_cast<size_t>(server)][piece]);
  return {{"", "uint8", {std::ssize(code)}, code.size()}, code.data()};
}

net::Message ServerClient::gradients_for(const Link& link, ServerRequest request,
                                         const std::string& text) const {
  net::Message message;
  const auto& pieces = pieces_of(link.shard);
  const servers::SentEarly* const early =
      request.samples > 0 ? sent_early_to(link, request.clock) : nullptr;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const bool goes = request.samples > 0 && !(early && early->pieces[i]);
    message.tensors.push_back(goes ? gradient_of(link.shard, i) : net::Message::Tensor{});
  }
  // A copy does not know with which parameters the gradients were computed.
  if (compensates_ && chains_.has_copies() && request.samples > 0)
    for (const plan::ServerPiece& piece : pieces)
      message.tensors.push_back(
          message_of(parameters_[static_cast<size_t>(piece.tensor)].tensor, piece));
  if (request.samples > 0) request.tables = gradients_of_rows_.add_to(message, link.shard);
  std::string told = text;
  if (early) {
    Json json = text.empty() ? Json::object() : Json::parse(text);
    json["early"] = {{"attempt", early->attempt}, {"count", early->count}};
    told = json.dump();
  }
  request.text = told;
  message.header = encode(request);
  return message;
}

void ServerClient::take_parameters(Link& link, const ServerReply& told) {
  link.version = told.version;
  link.told = std::max(link.told, told.version);
  newest_ = std::max(newest_, told.version);
  compensates_ = told.compensates;
  if (told.is_unchanged) return;
  for (const plan::ServerPiece& piece : pieces_of(link.shard))
    parameters_[static_cast<size_t>(piece.tensor)]
        .tensor.unsafeGetTensorImpl()
        ->bump_version();  // Autograd did not see the write.
}

}  // namespace trireme
