#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/server_client_impl.h>
#include <set>

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
              options_.why_lost, deadline),
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
  request.text = text;
  net::Message message;
  const auto& pieces = pieces_of(link.shard);
  for (size_t i = 0; i < pieces.size(); ++i)
    message.tensors.push_back(request.samples > 0 ? gradient_of(link.shard, i)
                                                  : net::Message::Tensor{});
  // A copy does not know with which parameters the gradients were computed.
  if (compensates_ && chains_.has_copies() && request.samples > 0)
    for (const plan::ServerPiece& piece : pieces)
      message.tensors.push_back(
          message_of(parameters_[static_cast<size_t>(piece.tensor)].tensor, piece));
  if (request.samples > 0) request.tables = gradients_of_rows_.add_to(message, link.shard);
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

// The clock answers early where the worker has to wait, so that this side can look at the job.
Json ServerClient::pull_from_clock(net::Message message, const std::string& wish,
                                   Deadline deadline) {
  Link& clock = chains_.first(0);
  return take_answer_of_clock(ask_one("pull", clock, deadline, std::move(message)), wish,
                              deadline);
}

Json ServerClient::take_answer_of_clock(net::Reply reply, const std::string& wish,
                                        Deadline deadline) {
  for (;;) {
    Link& clock = chains_.first(0);
    const ServerReply told = servers::decode_reply(reply.header);
    if (!told.is_early) {
      take_parameters(clock, told);
      if (told.has_all_beside)
        for (Link* const link : chains_.links_of(clock.server))
          link->told = std::max(link->told, told.version);
      const Json text = told.text.empty() ? Json::object() : Json::parse(told.text);
      if (text.contains("updates")) bring(text["updates"], deadline);
      clock_ = unsettled_ = told.clock;
      return text;
    }
    if (options_.look) options_.look();
    chains_.require_clock();
    if (deadline.expired()) throw Error(ErrorCode::timeout, "parallel", told.text);
    ServerRequest again = waiting_request(ServerCall::pull);
    again.clock = told.clock;
    again.text = wish;
    reply = ask_one("pull", clock, deadline, {encode(again), {}});
  }
}

namespace {

// The decisions that a server has not been told yet; empty: none.
std::string newer_than(int64_t told, const Json& updates) {
  Json newer = Json::array();
  for (const Json& update : updates)
    if (update.at(0).get<int64_t>() > told) newer.push_back(update);
  return newer.empty() ? "" : Json{{"updates", std::move(newer)}}.dump();
}

}  // namespace

// The others make the updates that the clock has decided on. Its copies hear of a decision before
// anybody acts by it: if the clock is lost, either one of them has the decision, or it never
// happened and the worker pushes again. They hear of it in the order of the chain: one that has
// become the clock refuses it before those behind it follow. The process of the last copy hears of
// it for its other pieces in the same message, and that of the clock is lost with the clock.
void ServerClient::bring(const Json& updates, Deadline deadline, bool pulls) {
  std::vector<Link*> at_once;
  for (Link* const copy : chains_.copies_of(0)) {
    if (!at_once.empty()) tell(at_once, updates, deadline);
    at_once = {copy};
  }
  const int last = at_once.empty() ? -1 : at_once[0]->server, clock = chains_.first(0).server;
  std::vector<Link*> others;
  for (Link* const link : chains_.all()) {
    if (link->shard == 0) continue;
    const bool may_hear_at_once = link->server == last || link->server == clock;
    (may_hear_at_once && last >= 0 ? at_once : others).push_back(link);
  }
  tell(at_once, updates, deadline, pulls);
  tell(others, updates, deadline, pulls);
}

// The decisions in an answer of the clock, without a pull.
void ServerClient::bring_from(const net::Reply& reply, Deadline deadline) {
  const std::string text = servers::decode_reply(reply.header).text;
  if (!text.empty()) bring(Json::parse(text).at("updates"), deadline, /*pulls=*/false);
}

// The first ones answer with parameters if this worker pulls; others that have all decisions need
// no call.
void ServerClient::tell(std::vector<Link*> links, const Json& updates, Deadline deadline,
                        bool pulls) {
  const auto gives_none = [&](const Link* link) {
    return !pulls || link != &chains_.first(link->shard);
  };
  std::erase_if(links, [&](const Link* link) {
    return gives_none(link) && newer_than(link->told, updates).empty();
  });
  const auto replies = ask(
      "decisions", links, deadline,
      [&](const Link& link) {
        ServerRequest request = request_of(ServerCall::follow, link);
        request.to_copy = gives_none(&link);
        const std::string text = newer_than(link.told, updates);
        request.text = text;
        return net::Message{encode(request), {}};
      },
      [&](const Link& link) { return gives_none(&link); });
  for (const net::Reply& reply : replies)
    if (servers::decode_reply(reply.header).is_deposed) chains_.leave_deposed_clock();
  for (size_t i = 0; i < links.size(); ++i) {
    const ServerReply told = servers::decode_reply(replies[i].header);
    if (gives_none(links[i]))
      links[i]->told = std::max(links[i]->told, told.version);
    else
      take_parameters(*links[i], told);
  }
}

net::Message ServerClient::held_message(const Link& link, int64_t clock, int64_t samples,
                                        const std::string& text) const {
  ServerRequest request = request_of(ServerCall::hold, link);
  request.clock = clock;
  request.follows = unsettled_;
  request.samples = samples;
  return gradients_for(link, request, text);
}

// Once the others have the gradients, the decision of the clock is all that is missing. Those in
// its process get them in the same message as the clock.
net::Reply ServerClient::push_to_all(ServerRequest request, int64_t samples,
                                     const std::string& text, Deadline deadline) {
  Link& clock = chains_.first(0);
  std::vector<Link*> elsewhere, beside_clock;
  for (Link* const link : chains_.all_but(clock))
    (link->server == clock.server ? beside_clock : elsewhere).push_back(link);
  const auto rides = [&](const Link& link) { return &link != &clock; };
  const auto message_for = [&](const Link& link) {
    if (rides(link)) return held_message(link, clock_, samples, text);
    request.samples = samples;
    return gradients_for(link, request, text);
  };
  ask("push", elsewhere, deadline, message_for, rides);
  beside_clock.push_back(&clock);
  return ask("push", beside_clock, deadline, message_for, rides).back();
}

ServerRequest ServerClient::waiting_request(ServerCall call) const {
  ServerRequest request = request_of(call, chains_.chain(0).front());
  if (options_.look) request.wait_ms = kLookMilliseconds;
  request.follows = told_to_all();
  return request;
}

// The newest decision that all but the clock have, as a request has it.
int64_t ServerClient::told_to_all() const {
  std::optional<int64_t> least;
  for (int shard = 0; shard < chains_.shards(); ++shard)
    for (const Link& link : chains_.chain(shard))
      if (&link != &chains_.chain(0).front())
        least = std::min(least.value_or(link.told), link.told);
  return least.value_or(ServerRequest().follows);
}

int64_t ServerClient::pull(Deadline deadline) {
  chains_.without_the_lost(deadline, [&] {
    pull_from_clock({encode(waiting_request(ServerCall::pull)), {}}, {}, deadline);
  });
  return clock_;
}

// A server that refused a part of the gradients would leave the others with theirs.
void ServerClient::prepare_gradients(int64_t samples) {
  if (samples == 0) return;
  for (NamedTensor& parameter : parameters_) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) continue;
    gradient = gradient.contiguous();
    if ((chains_.shards() > 1 || compressed_) && !at::isfinite(gradient.sum()).item<bool>() &&
        !at::isfinite(gradient).all().item<bool>())
      throw Error(
          ErrorCode::corrupt, "parallel",
          fmt::format("the gradient of '{}' has values that are NaN or infinite", parameter.name),
          "a smaller learning rate, or train.clip_norm");
  }
  if (compressed_) compressed_->encode(parameters_);
}

void ServerClient::push(int64_t samples, Deadline deadline) {
  prepare_gradients(samples);
  chains_.without_the_lost(deadline, [&] {
    push_to_all(request_of(ServerCall::push, chains_.first(0)), samples, {}, deadline);
  });
  ++clock_;
  if (compressed_ && samples > 0) compressed_->commit();
}

Json ServerClient::push_and_pull(int64_t samples, const std::string& text, const std::string& wish,
                                 Deadline deadline) {
  prepare_gradients(samples);
  Json told = chains_.without_the_lost(deadline, [&] {
    return take_answer_of_clock(
        push_to_all(waiting_request(ServerCall::push_pull), samples, text, deadline), wish,
        deadline);
  });
  if (compressed_ && samples > 0) compressed_->commit();
  return told;
}

int64_t ServerClient::push_pull(int64_t samples, Deadline deadline) {
  push_and_pull(samples, {}, {}, deadline);
  return clock_;
}

// A call to the clock of which its copies are to know too.
void ServerClient::tell_clocks(ServerCall call, const char* name, const std::string& text,
                               Deadline deadline) {
  chains_.without_the_lost(deadline, [&] {
    std::vector<Link*> links = chains_.copies_of(0);
    links.push_back(&chains_.first(0));
    ask(name, links, deadline, [&](const Link& link) {
      ServerRequest request = request_of(call, link);
      request.text = text;
      return net::Message{encode(request), {}};
    });
  });
}

// The decisions about this worker's last push, which no pull of its own brings to the others.
void ServerClient::leave(Deadline deadline) {
  chains_.without_the_lost(deadline, [&] {
    Link& clock = chains_.first(0);
    ServerRequest request = request_of(ServerCall::leave, clock);
    request.follows = told_to_all();
    bring_from(ask_one("leave", clock, deadline, {encode(request), {}}), deadline);
    ask("leave", chains_.copies_of(0), deadline, [&](const Link& link) {
      return net::Message{encode(request_of(ServerCall::leave, link)), {}};
    });
  });
}

std::vector<Json> ServerClient::facts_of(const std::vector<Link*>& links, Deadline deadline) {
  std::vector<Json> all;
  for (const net::Reply& reply : ask("facts", links, deadline, [&](const Link& link) {
         return net::Message{encode(request_of(ServerCall::facts, link)), {}};
       }))
    all.push_back(Json::parse(servers::decode_reply(reply.header).text));
  return all;
}

std::vector<Json> ServerClient::facts(Deadline deadline) {
  return chains_.without_the_lost(deadline, [&] { return facts_of(chains_.all(), deadline); });
}

std::vector<Json> ServerClient::facts_of_firsts(Deadline deadline) {
  return chains_.without_the_lost(deadline, [&] { return facts_of(chains_.firsts(), deadline); });
}

std::vector<int64_t> ServerClient::versions() const {
  std::vector<int64_t> versions;
  for (int shard = 0; shard < chains_.shards(); ++shard)
    versions.push_back(chains_.chain(shard).empty() ? -1 : chains_.chain(shard)[0].version);
  return versions;
}

void ServerClient::have_versions(const std::vector<int64_t>& versions) {
  for (size_t shard = 0; shard < versions.size(); ++shard)
    chains_.first(static_cast<int>(shard)).version = versions[shard];
  newest_ = *std::ranges::max_element(versions);
}

}  // namespace trireme
