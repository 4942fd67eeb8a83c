#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/servers/parameter_server_impl.h>
#include <algorithm>
#include <cstring>
#include <utility>

namespace trireme {
namespace {

using servers::ServerCall;
using servers::ServerReply;
using servers::ServerRequest;

constexpr int kMostThreads = 32;
constexpr int kKeptGenerations = 4;  // Pushes of earlier ones are decided, or never will be.

[[noreturn]] void refuse_call(const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, remedy);
}

bool has_gradients(ServerCall call) {
  return call == ServerCall::push || call == ServerCall::push_pull || call == ServerCall::hold;
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
}

}  // namespace

ParameterServer::Impl::Impl(ParameterServerOptions given)
    : options(std::move(given)),
      shard(options.placement, options.server, options.optimizer),
      clock(options.consistency, options.workers),
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

net::Placement ParameterServer::Impl::place(const net::Head& head) {
  check_tensors(servers::decode_request(head.header), head.tensors);
  return memory->place(head.tensors);
}

void ParameterServer::Impl::check_tensors(const ServerRequest& request,
                                          const std::vector<net::TensorNote>& tensors) const {
  if (request.call == ServerCall::write) return;  // They have names.
  const bool is_push = has_gradients(request.call);
  const size_t wanted = is_push || request.call == ServerCall::initialise ? form.size() : 0;
  if (tensors.size() != wanted)
    refuse_call(fmt::format("worker {} sends {} pieces, and server {} takes {}", request.worker,
                            tensors.size(), options.server, wanted),
                "the same model and number of servers everywhere");
  if (is_push && request.samples < 0)
    refuse_call(
        fmt::format("worker {} pushes the mean over {} samples", request.worker, request.samples));
  for (size_t i = 0; i < wanted; ++i) {
    const net::TensorNote &own = form[i].note, &given = tensors[i];
    if (is_push && given.bytes == 0) continue;  // No gradient.
    if (given.bytes != own.bytes || given.dtype != own.dtype)
      refuse_call(fmt::format("worker {} sends {} bytes of {} for '{}', which has {} of {}",
                              request.worker, given.bytes, given.dtype, shard.parameters()[i].name,
                              own.bytes, own.dtype),
                  "the same model everywhere");
  }
}

void ParameterServer::Impl::handle(net::Request message, net::Responder responder) {
  const ServerRequest request = servers::decode_request(message.head.header);
  check_tensors(request, message.head.tensors);
  {
    const std::lock_guard lock(mutex);
    check_worker(request);
  }
  if (handle_of_clock(request, message, responder)) return answer_the_waiting();
  switch (request.call) {
    case ServerCall::join: responder.reply({encode(join(request)), {}}); break;
    case ServerCall::initialise:
      responder.reply({encode(ServerReply{0, 0, /*is_unchanged=*/!initialise(message)}), {}});
      break;
    case ServerCall::hold:
      hold(request, message);
      responder.reply({encode(ServerReply{-1, request.clock + 1}), {}});
      break;
    case ServerCall::follow: {
      const std::lock_guard lock(mutex);
      follow(servers::updates_in(text_in(request).value("updates", Json::array())));
    }
      pull(request, std::move(responder));
      break;
    case ServerCall::measure: {
      const std::lock_guard lock(mutex);
      const double squares = squares_of(servers::update_in(text_in(request).at("update")));
      responder.reply(
          {encode(ServerReply{version, 0, false, false, Json{{"squares", squares}}.dump()}), {}});
      break;
    }
    case ServerCall::read: read_state(responder); break;
    case ServerCall::write:
      write_state(message, text_in(request));
      responder.reply({encode(ServerReply{}), {}});
      break;
    case ServerCall::facts: {
      const std::lock_guard lock(mutex);
      facts.updates = version;
      responder.reply({encode(ServerReply{version, 0, false, false, facts.to_json().dump()}), {}});
      break;
    }
    default: break;
  }
  answer_the_waiting();
}

// The calls of server 0. Returns false for those that all servers have.
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
  if (options.server != 0)
    refuse_call(fmt::format("worker {} asks server {}, and server 0 has the clock", request.worker,
                            options.server));
  if (request.call == ServerCall::push) push(request, message), reply({-1, request.clock + 1});
  if (request.call == ServerCall::leave) leave(request.worker), reply({});
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
  const int64_t first = options.server == 0 ? clock.join(request.worker) : 0;
  return {has_values ? version : -1, first};
}

// Nobody of an earlier generation pushes any more. Pushes that are decided stay until the update
// is made here.
void ParameterServer::Impl::begin_generation(int next, int count) {
  if (count < 1) refuse_call(fmt::format("a generation of {} workers", count));
  generation = next;
  workers = count;
  clock = plan::PushClock(clock.options(), count);
  gathered.clear();
  pulled.clear();
  round.leases.give_back_all();
  round.stops = round.regroups = false;
  // A round that ended before its first lease begins again. Within a generation it does not: some
  // workers have left it already.
  if (round.leases.limit() == 0) round = Round();
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
  if (has_values) return false;
  for (size_t i = 0; i < shard.size(); ++i)
    std::memcpy(shard.data(i), message.tensors[i].data(), shard.bytes(i));
  return has_values = true;
}

Json ParameterServerFacts::to_json() const {
  int64_t most = 0, sum = 0, count = 0;
  Json histogram = Json::object();
  for (const auto& [updates_between, number] : staleness) {
    most = std::max(most, updates_between);
    sum += updates_between * number;
    count += number;
    histogram[std::to_string(updates_between)] = number;
  }
  return {{"pushes", pushes},
          {"late_pushes", late_pushes},
          {"repeated_pushes", repeated_pushes},
          {"pulls", pulls},
          {"unchanged_pulls", unchanged_pulls},
          {"updates", updates},
          {"staleness",
           {{"max", most},
            {"mean", count > 0 ? static_cast<double>(sum) / static_cast<double>(count) : 0.0},
            {"histogram", std::move(histogram)}}}};
}

ParameterServer::ParameterServer(const net::Endpoint& listen, std::string token,
                                 ParameterServerOptions options) {
  check(options.consistency, options.workers);
  if (options.workers < 1)
    refuse_call(fmt::format("a parameter server for {} workers", options.workers));
  if (options.server < 0 || options.server >= options.placement.facts.servers)
    refuse_call(fmt::format("server {} of {}", options.server, options.placement.facts.servers));
  // A thread that answers a slow worker holds up no other one.
  options.channel.threads =
      std::max(options.channel.threads, std::min(options.workers + 1, kMostThreads));
  impl_ = std::make_shared<Impl>(std::move(options));
  impl_->keeper = std::jthread(
      [impl = impl_.get()](const std::stop_token& end) { impl->look_after_the_waiting(end); });
  net::RequestHandler handler;
  handler.place = [impl = impl_](const net::Head& head) { return impl->place(head); };
  handler.handle = [impl = impl_](net::Request request, net::Responder responder) {
    impl->handle(std::move(request), std::move(responder));
  };
  requests_ = std::make_unique<net::RequestServer>(listen, std::move(token), std::move(handler),
                                                   impl_->options.channel);
}

ParameterServer::~ParameterServer() {
  requests_.reset();
  impl_->keeper = {};
  const std::lock_guard lock(impl_->mutex);
  impl_->waiting.clear();
}

net::Endpoint ParameterServer::endpoint() const { return requests_->endpoint(); }

ParameterServerFacts ParameterServer::facts() const {
  const std::lock_guard lock(impl_->mutex);
  ParameterServerFacts facts = impl_->facts;
  facts.updates = impl_->version;
  return facts;
}

void ParameterServer::change(const plan::ConsistencyOptions& consistency) {
  check(consistency, impl_->options.workers);
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->compensates = consistency.consistency == plan::Consistency::delay_compensated;
    if (impl_->clock.change(consistency)) impl_->decide_gathered();
  }
  impl_->answer_the_waiting();
}

void ParameterServer::leave(int worker) {
  impl_->leave(worker);
  impl_->answer_the_waiting();
}

}  // namespace trireme
