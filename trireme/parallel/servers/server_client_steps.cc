// A worker's side of parameter servers: steps with push and pull, and what the servers count.
#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/server_client_impl.h>

namespace trireme {

using servers::ServerCall;
using servers::ServerReply;
using servers::ServerRequest;

namespace {

// Between two looks at the job while a call waits for other workers.
constexpr int kLookMilliseconds = 100;

}  // namespace

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
    try {
      reply = ask_one("pull", clock, deadline, {encode(again), {}});
    } catch (const Error& error) {  // The clock has said for whom this worker waits.
      if (error.code() != ErrorCode::timeout) throw;
      throw Error(ErrorCode::timeout, "parallel", told.text);
    }
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
