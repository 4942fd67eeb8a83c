#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/fused/kernels.h>
#include <trireme/parallel/servers/parameter_server.h>
#include <trireme/parallel/servers/request_memory.h>
#include <trireme/parallel/servers/server_shard.h>
#include <trireme/parallel/servers/server_wire.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace trireme {
namespace {

using servers::kMemoryLine;
using servers::lines_of;
using servers::MemoryLine;
using servers::RequestMemory;
using servers::ServerCall;
using servers::ServerReply;
using servers::ServerRequest;
using servers::ServerShard;
using servers::told_form;
using Gradients = std::vector<void*>;  // [piece]; null: none.
using Verdict = plan::PushClock::Verdict;

constexpr Milliseconds kLook{50};  // Between two looks at those that wait.
constexpr int kMostThreads = 32;
constexpr uint64_t kSmallAnswer = 64 << 10;  // It goes into the buffers of a channel.

[[noreturn]] void refuse_call(const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, remedy);
}

bool is_finite(const ServerShard& shard, size_t i, void* gradient) {
  const int64_t count = shard.piece(i).count;
  switch (shard.parameters()[i].tensor.scalar_type()) {
    case at::kFloat:
      return std::isfinite(fused::sum_of_squares(static_cast<const float*>(gradient), count));
    case at::kDouble:
      return std::isfinite(fused::sum_of_squares(static_cast<const double*>(gradient), count));
    default: return at::isfinite(shard.tensor_in(i, gradient)).all().item<bool>();
  }
}

}  // namespace

struct ParameterServer::Impl {
  Impl(ParameterServerOptions given)
      : options(std::move(given)),
        shard(options.placement, options.server, options.optimizer),
        clock(options.consistency, options.workers) {
    for (size_t i = 0; i < shard.size(); ++i) {
      const at::Tensor& tensor = shard.parameters()[i].tensor;
      form.push_back({{"",
                       std::string(plan::to_string(to_stored(tensor.scalar_type()))),
                       {tensor.numel()},
                       tensor.nbytes()},
                      nullptr});
    }
  }

  // A worker that waits for parameters.
  struct Waiting {
    int worker = 0;
    int64_t clock = 0, known = -1;
    Deadline deadline;
    net::Responder responder;
  };
  // The parameters of one version. Its memory serves other versions when nobody has it any more.
  struct Copy {
    std::unique_ptr<MemoryLine[]> memory;
    std::vector<std::byte*> pieces;
  };
  using Values = std::shared_ptr<const Copy>;
  struct Answer {
    ServerReply reply;
    Values values;  // Null if the worker has them.
    net::Responder responder;
  };
  struct Push {
    Gradients gradients;
    int64_t samples = 0;
    std::shared_ptr<void> owner;  // It keeps the gradients' memory.
  };
  // The parameters that a worker got last.
  struct Pulled {
    int64_t version = 0;
    Values values;  // Only for delay compensation.
  };

  net::Placement place(const net::Head& head);
  void handle(net::Request request, net::Responder responder);
  ServerReply join(const ServerRequest& request);
  bool initialise(const net::Request& message);  // False if there were values before.
  void push(const ServerRequest& request, const net::Request& message);
  void pull(const ServerRequest& request, net::Responder responder);
  Gradients gradients_in(const net::Request& message) const;
  void compensate(int worker, Gradients& gradients);
  void apply_gathered();
  // The answers to workers that may begin their steps.
  std::vector<Answer> take_ready();
  void send(std::vector<Answer> answers) const;
  void answer_the_waiting() {
    std::vector<Answer> ready;
    {
      const std::lock_guard lock(mutex);
      ready = take_ready();
    }
    send(std::move(ready));
  }
  void look_after_the_waiting(const std::stop_token& end);
  std::string reason_to_wait(const Waiting& waiting) const;
  const Values& values_now();
  void check_worker(int worker) const;
  // Throws Error(invalid_argument) unless the tensors are those that the call has.
  void check_tensors(const ServerRequest& request,
                     const std::vector<net::TensorNote>& tensors) const;

  const ParameterServerOptions options;
  std::vector<net::Message::Tensor> form;  // The tensors of replies, without data.
  const std::shared_ptr<RequestMemory> memory = std::make_shared<RequestMemory>();

  mutable std::mutex mutex;  // Guards what follows.
  ServerShard shard;
  plan::PushClock clock;
  bool has_values = false;
  std::map<int, Push> gathered;
  std::map<int, Pulled> pulled;
  std::list<Waiting> waiting;
  std::vector<std::shared_ptr<Copy>> copies;
  Values values;  // The copy of `values_version`.
  int64_t values_version = -1;
  ParameterServerFacts facts;

  std::condition_variable_any ends;
  std::jthread keeper;  // Ends before the rest.
};

void ParameterServer::Impl::check_worker(int worker) const {
  if (worker < 0 || worker >= options.workers)
    refuse_call(fmt::format("worker {} of a job with {} workers", worker, options.workers));
}

net::Placement ParameterServer::Impl::place(const net::Head& head) {
  check_tensors(servers::decode_request(head.header), head.tensors);
  return memory->place(head.tensors);
}

void ParameterServer::Impl::check_tensors(const ServerRequest& request,
                                          const std::vector<net::TensorNote>& tensors) const {
  const bool is_push = request.call == ServerCall::push || request.call == ServerCall::push_pull;
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
  check_worker(request.worker);
  check_tensors(request, message.head.tensors);
  switch (request.call) {
    case ServerCall::join: responder.reply({encode(join(request)), {}}); break;
    case ServerCall::initialise:
      responder.reply({encode(ServerReply{0, 0, /*is_unchanged=*/!initialise(message)}), {}});
      break;
    case ServerCall::push:
      push(request, message);
      responder.reply({encode(ServerReply{-1, request.clock + 1}), {}});
      break;
    case ServerCall::push_pull:
      push(request, message);
      pull({ServerCall::pull, request.worker, request.clock + 1, 0, request.known, {}},
           std::move(responder));
      break;
    case ServerCall::pull: pull(request, std::move(responder)); break;
    case ServerCall::leave: {
      const std::lock_guard lock(mutex);
      if (clock.leave(request.worker)) apply_gathered();
    }
      responder.reply({encode(ServerReply{}), {}});
      break;
  }
  answer_the_waiting();
}

// Compares the model as the worker has it, and names the first difference.
ServerReply ParameterServer::Impl::join(const ServerRequest& request) {
  const Json told = Json::parse(request.text, nullptr, /*allow_exceptions=*/false);
  const Json tensors = told.is_object() ? told.value("tensors", Json::array()) : Json::array();
  const auto& own = options.placement.facts.tensors;
  const auto differs = [&](const std::string& what) {
    refuse_call(fmt::format("worker {} has another model than server {}: {}", request.worker,
                            options.server, what),
                "the same programme and configuration everywhere");
  };
  for (size_t i = 0; i < std::max(own.size(), tensors.size()); ++i) {
    const std::string mine = i < own.size() ? told_form(own[i]) : "nothing",
                      theirs = i < tensors.size() ? tensors[i].get<std::string>() : "nothing";
    if (mine != theirs)
      differs(fmt::format("tensor {} is {} there, and {} here", i, theirs, mine));
  }
  if (told.value("placement", "") != options.placement.digest())
    differs("its parameters are placed on other servers");
  const std::lock_guard lock(mutex);
  pulled.erase(request.worker);
  return {has_values ? clock.updates() : -1, clock.join(request.worker)};
}

bool ParameterServer::Impl::initialise(const net::Request& message) {
  const std::lock_guard lock(mutex);
  if (has_values) return false;
  for (size_t i = 0; i < shard.size(); ++i)
    std::memcpy(shard.data(i), message.tensors[i].data(), shard.bytes(i));
  return has_values = true;
}

Gradients ParameterServer::Impl::gradients_in(const net::Request& message) const {
  Gradients gradients(shard.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (message.head.tensors[i].bytes == 0) continue;
    gradients[i] = message.tensors[i].data();
    if (options.refuses_nonfinite && !is_finite(shard, i, gradients[i]))
      throw Error(ErrorCode::corrupt, "parallel",
                  fmt::format("the gradient of '{}' has values that are NaN or infinite",
                              shard.parameters()[i].name),
                  "a smaller learning rate, or train.clip_norm");
  }
  return gradients;
}

void ParameterServer::Impl::push(const ServerRequest& request, const net::Request& message) {
  // The mean over no samples is nothing.
  Gradients gradients =
      request.samples > 0 ? gradients_in(message) : Gradients(shard.size(), nullptr);
  const std::lock_guard lock(mutex);
  if (!has_values)
    refuse_call(fmt::format("worker {} pushes before the parameters have values", request.worker));
  const int64_t before = clock.updates();
  const Verdict verdict = clock.push(request.worker, request.clock);
  ++facts.pushes;
  if (verdict == Verdict::repeated) ++facts.repeated_pushes;
  if (verdict == Verdict::late) ++facts.late_pushes;
  if (verdict == Verdict::repeated || verdict == Verdict::late) return;
  ++facts.staleness[before - pulled[request.worker].version];
  if (verdict == Verdict::update) {
    compensate(request.worker, gradients);
    shard.update(gradients);
    return;
  }
  gathered[request.worker] = {std::move(gradients), request.samples, message.owner};
  if (verdict == Verdict::complete) apply_gathered();
}

// g + lambda g g (w_now - w_pulled): the diagonal of the outer product of gradients stands for the
// Hessian (Zheng et al. 2017, equation 10).
void ParameterServer::Impl::compensate(int worker, Gradients& gradients) {
  const Values& then = pulled[worker].values;
  if (clock.options().consistency != plan::Consistency::delay_compensated || !then) return;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i] == nullptr) continue;
    const at::Tensor gradient = shard.tensor_in(i, gradients[i]);
    const at::Tensor distance = shard.parameters()[i].tensor - shard.tensor_in(i, then->pieces[i]);
    gradient.add_(gradient * gradient * distance, options.compensation);
  }
}

// The mean over all samples, in the order of the workers, so that the bits do not depend on the
// order in which pushes came.
void ParameterServer::Impl::apply_gathered() {
  const at::NoGradGuard no_grad;
  std::map<int, Push> pushes = std::exchange(gathered, {});  // Gone even if the update fails.
  double samples = 0;
  for (const auto& [worker, push] : pushes) samples += static_cast<double>(push.samples);
  Gradients sums(shard.size());
  for (auto& [worker, push] : pushes) {
    if (push.samples == 0) continue;
    const double share = static_cast<double>(push.samples) / samples;
    for (size_t i = 0; i < sums.size(); ++i) {
      if (push.gradients[i] == nullptr) continue;
      const at::Tensor gradient = shard.tensor_in(i, push.gradients[i]);
      if (sums[i] != nullptr)
        shard.tensor_in(i, sums[i]).add_(gradient, share);
      else
        gradient.mul_(share), sums[i] = push.gradients[i];
    }
  }
  shard.update(sums);
}

void ParameterServer::Impl::pull(const ServerRequest& request, net::Responder responder) {
  const std::lock_guard lock(mutex);
  if (!clock.has(request.worker))
    refuse_call(fmt::format("worker {} pulls, and has not joined", request.worker));
  waiting.push_back({request.worker, request.clock, request.known,
                     Deadline::after(options.patience), std::move(responder)});
}

const ParameterServer::Impl::Values& ParameterServer::Impl::values_now() {
  if (values_version == clock.updates()) return values;
  values.reset();
  auto free = std::ranges::find_if(copies, [](const auto& copy) { return copy.use_count() == 1; });
  if (free == copies.end()) {
    auto copy = std::make_shared<Copy>();
    size_t lines = 1;
    for (size_t i = 0; i < shard.size(); ++i) lines += lines_of(shard.bytes(i));
    copy->memory = std::make_unique_for_overwrite<MemoryLine[]>(lines);
    std::byte* at = copy->memory[0].bytes;
    for (size_t i = 0; i < shard.size(); ++i) {
      copy->pieces.push_back(at);
      at += lines_of(shard.bytes(i)) * kMemoryLine;
    }
    free = copies.insert(copies.end(), std::move(copy));
  }
  std::atomic_thread_fence(std::memory_order_acquire);  // Its last reader has read all of it.
  shard.copy_to((*free)->pieces);
  values = *free;
  values_version = clock.updates();
  return values;
}

std::vector<ParameterServer::Impl::Answer> ParameterServer::Impl::take_ready() {
  std::vector<Answer> ready;
  for (auto each = waiting.begin(); each != waiting.end();) {
    const int64_t step = clock.step_to_begin(each->worker, each->clock);
    if (each->responder.cancelled()) {
      each = waiting.erase(each);
      continue;
    }
    if (!has_values || !clock.may_begin(each->worker, step)) {
      ++each;
      continue;
    }
    const int64_t version = clock.updates();
    const bool has_it = each->known == version;
    ++facts.pulls;
    facts.unchanged_pulls += has_it;
    Pulled& worker = pulled[each->worker];
    worker.version = version;
    const bool compensates = clock.options().consistency == plan::Consistency::delay_compensated;
    worker.values = compensates ? values_now() : nullptr;
    ready.push_back(
        {{version, step, has_it}, has_it ? Values() : values_now(), std::move(each->responder)});
    each = waiting.erase(each);
  }
  return ready;
}

void ParameterServer::Impl::send(std::vector<Answer> answers) const {
  const auto send_one = [this](Answer& answer) {
    net::Message message{encode(answer.reply), {}};
    if (answer.values) message.tensors = form;
    for (size_t i = 0; i < message.tensors.size(); ++i)
      message.tensors[i].data = answer.values->pieces[i];
    try {
      answer.responder.reply(message);
    } catch (const Error& error) {  // Such as limits of the client's.
      answer.responder.fail(error.code(), error.what());
    }
  };
  uint64_t bytes = 0;
  for (const net::Message::Tensor& tensor : form) bytes += tensor.note.bytes;
  // A large answer waits for its reader, so a slow worker would hold up the others.
  std::vector<std::jthread> apart;
  for (size_t i = 0; i < answers.size(); ++i)
    if (bytes > kSmallAnswer && i + 1 < answers.size())
      apart.emplace_back([&, i] { send_one(answers[i]); });
    else
      send_one(answers[i]);
}

std::string ParameterServer::Impl::reason_to_wait(const Waiting& each) const {
  if (!has_values) return "no worker has sent the first values";
  const auto slowest = clock.slowest();
  if (!slowest || slowest->worker == each.worker) return "it has not joined";
  return fmt::format(
      "with ps.consistency={} it waits for worker {}, which has not pushed its "
      "step {}",
      to_string(clock.options().consistency), slowest->worker, slowest->clock);
}

void ParameterServer::Impl::look_after_the_waiting(const std::stop_token& end) {
  std::unique_lock lock(mutex);
  while (!end.stop_requested()) {
    ends.wait_for(lock, end, kLook, [&] { return end.stop_requested(); });
    std::vector<std::pair<net::Responder, std::string>> late;
    for (auto each = waiting.begin(); each != waiting.end();) {
      if (!each->deadline.expired()) {
        ++each;
        continue;
      }
      late.emplace_back(
          std::move(each->responder),
          fmt::format("worker {} could not begin its step {} for {} s: {}", each->worker,
                      each->clock, static_cast<double>(options.patience.count()) / 1e3,
                      reason_to_wait(*each)));
      each = waiting.erase(each);
    }
    lock.unlock();
    for (auto& [responder, why] : late) responder.fail(ErrorCode::timeout, why);
    lock.lock();
  }
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
  facts.updates = impl_->clock.updates();
  return facts;
}

void ParameterServer::change(const plan::ConsistencyOptions& consistency) {
  check(consistency, impl_->options.workers);
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->clock.change(consistency)) impl_->apply_gathered();
  }
  impl_->answer_the_waiting();
}

void ParameterServer::leave(int worker) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->clock.leave(worker)) impl_->apply_gathered();
  }
  impl_->answer_the_waiting();
}

}  // namespace trireme
