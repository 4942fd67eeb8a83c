// Parameter servers: the calls of workers.
#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/dtype.h>
#include <trireme/monitor/resources.h>
#include <trireme/parallel/servers/parameter_server_impl.h>
#include <trireme/parallel/servers/tables/table_checks.h>
#include <algorithm>
#include <cstring>
#include <utility>

namespace trireme {

using servers::refuse_call;
using servers::ServerCall;
using servers::ServerReply;
using servers::ServerRequest;

void servers::refuse_call(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, remedy);
}

namespace {

constexpr int kKeptGenerations = 4;  // Pushes of earlier ones are decided, or never will be.

bool has_gradients(ServerCall call) {
  return call == ServerCall::push || call == ServerCall::push_pull || call == ServerCall::hold ||
         call == ServerCall::hold_early;
}

// The calls that the first server of a chain gets in each step.
bool is_of_steps(ServerCall call) {
  return has_gradients(call) || call == ServerCall::pull || call == ServerCall::follow ||
         call == ServerCall::rows;
}

Json text_in(const ServerRequest& request) {
  if (request.text.empty()) return Json::object();
  const Json text = Json::parse(request.text, nullptr, /*allow_exceptions=*/false);
  if (!text.is_object())
    throw Error(ErrorCode::corrupt, "parallel", "the text of a call to a server is no JSON");
  return text;
}

// Throws Error(invalid_argument) naming the first difference between the worker's model and ours.
void compare_models(const Json& told, const ServerRequest& request,
                    const ParameterServerOptions& options) {
  const Json tensors = told.value("tensors", Json::array());
  const auto& own = options.placement.facts.tensors;
  const auto differs = [&](const std::string& what) {
    refuse_call(fmt::format("worker {} has another model than server {}: {}", request.worker,
                            options.server, what),
                "the same programme and configuration everywhere");
  };
  for (size_t i = 0; i < std::max(own.size(), tensors.size()); ++i) {
    const std::string mine = i < own.size() ? servers::told_form(own[i]) : "nothing",
                      theirs = i < tensors.size() ? tensors[i].get<std::string>() : "nothing";
    if (mine != theirs)
      differs(fmt::format("tensor {} is {} there, and {} here", i, theirs, mine));
  }
  if (told.value("placement", "") != options.placement.digest())
    differs("its parameters are placed on other servers");
  const Json own_tables = options.tables.facts.tables.empty() ? Json() : options.tables.to_json();
  if (const Json theirs = told.value("tables", Json()); theirs != own_tables)
    differs(
        fmt::format("its embedding tables are {}, and here {}", theirs.dump(), own_tables.dump()));
}

}  // namespace
ParameterServer::Impl::Impl(ParameterServerOptions given, int owner_of_pieces, int place_in_chain)
    : options(std::move(given)),
      owner(owner_of_pieces),
      place(place_in_chain),
      shard(options.placement, owner, options.optimizer),
      tables(options.tables.facts.tables, options.table_options),
      clock(options.consistency, options.workers),
      is_clock(owner == 0 && place == 0),
      acts_as_first(place == 0),
      workers(options.workers),
      compensates(options.consistency.consistency == plan::Consistency::delay_compensated) {
  for (size_t i = 0; i < shard.size(); ++i) {
    const at::Tensor& tensor = shard.parameters()[i].tensor;
    form.push_back({{"",
                     std::string(plan::to_string(to_stored(tensor.scalar_type()))),
                     {tensor.numel()},
                     tensor.nbytes()},
                    nullptr});
  }
  if (options.compression.name != "none") codec.emplace(options.compression);
  if (tables.size() > 0) first_rate = servers::first_rate_of(options.optimizer);
}

// The form in which a worker sends the gradient of a piece.
net::TensorNote ParameterServer::Impl::note_of_gradient(size_t piece) const {
  if (!codec) return form[piece].note;
  const int64_t bytes = codec->bytes_of(shard.piece(piece).count);
  return {"", "uint8", {bytes}, static_cast<uint64_t>(bytes)};
}

void ParameterServer::Impl::check_worker(const ServerRequest& request) const {
  if (request.call == ServerCall::join || request.call == ServerCall::facts) return;
  if (request.generation < generation)
    throw Error(ErrorCode::aborted, "parallel",
                fmt::format("worker {} of generation {} calls server {}, and the job is in "
                            "generation {}",
                            request.worker, request.generation, options.server, generation),
                "nothing: the job goes on without this process");
  if (request.generation > generation)
    refuse_call(fmt::format("worker {} of generation {} has not joined server {}", request.worker,
                            request.generation, options.server));
  if (request.worker < 0 || request.worker >= workers)
    refuse_call(fmt::format("worker {} of a job with {} workers", request.worker, workers));
}

void ParameterServer::Impl::check_tensors(const ServerRequest& request,
                                          const std::vector<net::TensorNote>& all) const {
  if (request.call == ServerCall::write) return;  // They have names.
  if (request.call == ServerCall::write_rows) return;
  const bool is_push = has_gradients(request.call);
  const size_t of_rows = (is_push ? 2 : 1) * request.tables.size();
  const size_t wanted = is_push || request.call == ServerCall::initialise ? form.size() : 0;
  std::span<const net::TensorNote> tensors = all;
  if (of_rows > all.size())
    refuse_call(fmt::format("worker {} sends {} tensors for rows of {} tables", request.worker,
                            all.size(), request.tables.size()));
  servers::check_row_tensors(request.tables, is_push, tensors.last(of_rows),
                             options.tables.facts.tables, request.worker);
  tensors = tensors.first(all.size() - of_rows);
  // The parameters may follow with which the gradients were computed.
  if (tensors.size() != wanted && !(is_push && tensors.size() == 2 * wanted))
    refuse_call(fmt::format("worker {} sends {} pieces, and server {} takes {}", request.worker,
                            tensors.size(), options.server, wanted),
                "the same model and number of servers everywhere");
  if (is_push && request.samples < 0)
    refuse_call(
        fmt::format("worker {} pushes the mean over {} samples", request.worker, request.samples));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t piece = i % form.size();
    const bool is_gradient = is_push && i < wanted;
    const net::TensorNote own = is_gradient ? note_of_gradient(piece) : form[piece].note;
    const net::TensorNote& given = tensors[i];
    if (is_gradient && given.bytes == 0) continue;  // No gradient.
    if (given.bytes != own.bytes || given.dtype != own.dtype)
      refuse_call(fmt::format("worker {} sends {} bytes of {} for '{}', which has {} of {}",
                              request.worker, given.bytes, given.dtype,
                              shard.parameters()[piece].name, own.bytes, own.dtype),
                  "the same model and strategy.compression everywhere");
  }
}

void ParameterServer::Impl::begin_call(const ServerRequest& request) {
  const std::lock_guard lock(mutex);
  check_worker(request);
  if (is_of_steps(request.call) && !request.to_copy && !std::exchange(acts_as_first, true)) {
    ++facts.failovers;
    log_warning(
        "server {} takes the place of one that the job has lost: it has the pieces of server {}",
        options.server, owner);
  }
}

ServerReply ParameterServer::Impl::answer_rider(const net::Request& message) {
  const ServerRequest request = servers::decode_request(message.head.header);
  check_tensors(request, message.head.tensors);
  begin_call(request);
  ServerReply reply{.version = -1, .clock = request.clock + 1};
  if (request.call == ServerCall::hold)
    hold(request, message);
  else if (request.call == ServerCall::follow && request.to_copy)
    reply = follow_told(request);
  else
    refuse_call(fmt::format("worker {} sends call {} with another one", request.worker,
                            static_cast<int>(request.call)));
  answer_the_waiting();
  return reply;
}

void ParameterServer::Impl::handle(net::Request message, net::Responder responder) {
  const ServerRequest request = servers::decode_request(message.head.header);
  check_tensors(request, message.head.tensors);
  begin_call(request);
  if (handle_of_clock(request, message, responder)) return answer_the_waiting();
  if (handle_of_rows(request, message, responder)) return;
  switch (request.call) {
    case ServerCall::join: responder.reply({encode(join(request)), {}}); break;
    case ServerCall::initialise:
      responder.reply({encode(ServerReply{.is_unchanged = !initialise(message)}), {}});
      break;
    case ServerCall::hold:
      hold(request, message);
      responder.reply({encode(ServerReply{.version = -1, .clock = request.clock + 1}), {}});
      break;
    case ServerCall::hold_early:
      hold_early(request, message);
      responder.reply({encode(ServerReply{}), {}});
      return;  // It changes nothing for those that wait.
    case ServerCall::follow: follow_and_answer(request, responder); break;
    case ServerCall::measure: {
      const std::lock_guard lock(mutex);
      const double squares = squares_of(servers::update_in(text_in(request).at("update")));
      responder.reply(
          {encode(ServerReply{.version = version, .text = Json{{"squares", squares}}.dump()}),
           {}});
      break;
    }
    case ServerCall::read: read_state(text_in(request), responder); break;
    case ServerCall::write:
      write_state(message, text_in(request));
      responder.reply({encode(ServerReply{}), {}});
      break;
    case ServerCall::restored: {
      const std::lock_guard lock(mutex);
      being_restored = false;
      responder.reply({encode(ServerReply{.version = version}), {}});
      break;
    }
    case ServerCall::decisions: responder.reply({encode(decisions_asked_for(request)), {}}); break;
    case ServerCall::facts: {
      const std::lock_guard lock(mutex);
      Json told = facts.to_json();
      told["server"] = options.server;
      told["cpu_seconds"] = monitor::process_cpu_seconds();
      for (const RowTableFacts& each : tables.facts()) told["tables"].push_back(each.to_json());
      responder.reply({encode(ServerReply{.version = version, .text = told.dump()}), {}});
      break;
    }
    default: break;
  }
  answer_the_waiting();
}

// Decisions of a clock whose place another one has taken never happened.
ServerReply ParameterServer::Impl::follow_told(const ServerRequest& request) {
  const std::lock_guard lock(mutex);
  ServerReply reply{.clock = request.clock, .is_unchanged = true};
  reply.is_deposed =
      !follow(servers::updates_in(text_in(request).value("updates", Json::array())));
  reply.version = version;
  return reply;
}

void ParameterServer::Impl::follow_and_answer(const ServerRequest& request,
                                              net::Responder& responder) {
  const ServerReply reply = follow_told(request);
  if (reply.is_deposed || request.to_copy)
    responder.reply({encode(reply), {}});
  else
    pull(request, std::move(responder));
}

ServerReply ParameterServer::Impl::decisions_asked_for(const ServerRequest& request) {
  const std::lock_guard lock(mutex);
  const Json updates = decisions_for(request);
  return {.version = version, .text = updates.is_null() ? "" : Json{{"updates", updates}}.dump()};
}

// A worker calls the first server of the chain that the job has not lost.
void ParameterServer::Impl::become_clock(const ServerRequest& request) {
  const std::lock_guard lock(mutex);
  if (!std::exchange(is_clock, true)) {
    // Each place of the chain has terms of its own: two copies that become the clock one after the
    // other may not have heard of each other.
    do ++term;
    while (term % options.placement.facts.replication != place);
    term_from = version;
  }
  if (term == 0) return;
  judge_held(request);
  clock.resume(request.worker, request.clock);
}

// The calls of the clock. Returns false for those that all servers have.
bool ParameterServer::Impl::handle_of_clock(const ServerRequest& request,
                                            const net::Request& message,
                                            net::Responder& responder) {
  const auto reply = [&](const ServerReply& told) { responder.reply({encode(told), {}}); };
  switch (request.call) {
    case ServerCall::push:
    case ServerCall::push_pull:
    case ServerCall::pull:
    case ServerCall::leave:
    case ServerCall::open_round:
    case ServerCall::skip: break;
    default: return false;
  }
  if (owner != 0)
    refuse_call(fmt::format("worker {} asks server {}, and server 0 has the clock", request.worker,
                            owner));
  if (!request.to_copy) become_clock(request);
  if (request.call == ServerCall::push) {
    push(request, message);
    reply({.version = -1, .clock = request.clock + 1});
  }
  if (request.call == ServerCall::leave) {
    leave(request.worker);
    reply(decisions_asked_for(request));
  }
  if (request.call == ServerCall::open_round) reply(open_round(request));
  if (request.call == ServerCall::skip) skip(request), reply({});
  if (request.call == ServerCall::pull) pull(request, std::move(responder));
  if (request.call == ServerCall::push_pull) {
    push(request, message);
    ServerRequest then = request;
    then.call = ServerCall::pull;
    ++then.clock;
    pull(then, std::move(responder));
  }
  return true;
}

// Compares the model as the worker has it, and names the first difference.
ServerReply ParameterServer::Impl::join(const ServerRequest& request) {
  const Json told = text_in(request);
  compare_models(told, request, options);
  const std::lock_guard lock(mutex);
  if (request.generation > generation)
    begin_generation(request.generation, told.value("workers", workers));
  check_worker({ServerCall::pull, request.worker, request.generation});
  pulled.erase(request.worker);
  early.erase(request.worker);  // Of a process before this one.
  const int64_t first = owner == 0 ? clock.join(request.worker) : 0;
  return {.version = has_values && !being_restored ? version : -1, .clock = first};
}

// Nobody of an earlier generation pushes any more. Pushes that are decided stay until the update
// is made here.
void ParameterServer::Impl::begin_generation(int next, int count) {
  if (count < 1) refuse_call(fmt::format("a generation of {} workers", count));
  generation = next;
  workers = count;
  clock = plan::PushClock(clock.options(), count);
  gathered.clear();
  early.clear();
  pulled.clear();
  round.leases.give_back_all();
  round.stops = round.regroups = false;
  // A round that ended before its first lease begins again. Within a generation it does not: some
  // workers have left it already.
  if (round.leases.limit() == 0) {
    round = Round();
    for (servers::ServerUpdate& each : decided) each.stopped.reset();
  }
  std::erase_if(held, [&](const auto& each) {
    return each.first.generation + kKeptGenerations <= generation;
  });
  for (Waiting& each : waiting)
    each.responder.fail(ErrorCode::aborted,
                        fmt::format("generation {} of the job has begun", generation));
  waiting.clear();
}

bool ParameterServer::Impl::initialise(const net::Request& message) {
  const std::lock_guard lock(mutex);
  if (being_restored)
    throw Error(ErrorCode::corrupt, "parallel",
                fmt::format("server {} has a part of the pieces of another one, and nobody has "
                            "the rest",
                            options.server),
                "the job again, from its newest checkpoint");
  if (has_values) return false;
  for (size_t i = 0; i < shard.size(); ++i)
    std::memcpy(shard.data(i), message.tensors[i].data(), shard.bytes(i));
  return has_values = true;
}

}  // namespace trireme
