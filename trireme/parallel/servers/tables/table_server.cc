#include <trireme/parallel/servers/tables/table_server.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/request_memory.h>
#include <trireme/parallel/servers/tables/shard_tables.h>
#include <trireme/parallel/servers/tables/table_checks.h>
#include <trireme/parallel/servers/tables/table_wire.h>
#include <algorithm>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace trireme {
namespace {

using servers::RowGradients;
using servers::RowTable;
using servers::TableCall;
using servers::TableReply;
using servers::TableRequest;
using PushVerdict = plan::PushClock::Verdict;

constexpr Milliseconds kTableLook{50};  // Between two looks at those that wait.
constexpr int kMostTableThreads = 32;

[[noreturn]] void refuse_table_call(const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, remedy);
}

std::span<const int64_t> rows_in(const std::span<std::byte>& bytes) {
  return {reinterpret_cast<const int64_t*>(bytes.data()), bytes.size() / sizeof(int64_t)};
}

const float* floats_in(const std::span<std::byte>& bytes) {
  return reinterpret_cast<const float*>(bytes.data());
}

}  // namespace

struct TableServer::Impl {
  explicit Impl(TableServerOptions given)
      : options(std::move(given)),
        tables(options.plan.facts.tables, options.tables),
        clock(options.consistency, options.workers) {}

  // A pull, which may wait until its worker may begin a step.
  struct Pull {
    TableRequest request;
    net::Request message;
    Deadline deadline;
    net::Responder responder;
  };
  struct Answer {
    std::string header;
    std::vector<net::TensorNote> notes;
    net::Placement values;
    std::optional<Error> error;
    net::Responder responder;
  };
  struct Push {
    servers::PushedRows rows;
    int64_t samples = 0;
    std::shared_ptr<void> owner;  // It keeps the memory of rows and gradients.
  };

  const plan::TableSpec& spec_of(size_t table) const { return options.plan.facts.tables[table]; }
  void check_tensors(const TableRequest& request,
                     const std::vector<net::TensorNote>& notes) const {
    servers::check_tensors(request, notes, options.plan, options.workers);
  }
  void handle(net::Request message, net::Responder responder);
  TableReply join(const TableRequest& request);
  int64_t push(const TableRequest& request, const net::Request& message);
  void apply(const Push& push);
  void apply_gathered();
  void pull(TableRequest request, net::Request message, net::Responder responder);
  Answer answer_to(Pull pull);
  void answer_the_waiting();
  void look_after_the_waiting(const std::stop_token& end);
  uint32_t now() const { return static_cast<uint32_t>(clock.updates()); }

  const TableServerOptions options;
  const std::shared_ptr<servers::RequestMemory> memory =
      std::make_shared<servers::RequestMemory>();

  mutable std::mutex mutex;  // Guards what follows.
  servers::ShardTables tables;
  plan::PushClock clock;
  std::map<int, Push> gathered;
  std::list<Pull> waiting;
  TableServerFacts facts;

  std::condition_variable_any ends;
  std::jthread keeper;  // Ends before the rest.
};

void TableServer::Impl::handle(net::Request message, net::Responder responder) {
  const TableRequest request = servers::decode_table_request(message.head.header);
  check_tensors(request, message.head.tensors);
  const size_t each = request.call == TableCall::push ? 2 : 1;
  for (size_t i = 0; i < request.tables.size(); ++i)
    servers::check_rows(spec_of(static_cast<size_t>(request.tables[i])),
                        rows_in(message.tensors[each * i]), request.worker);
  switch (request.call) {
    case TableCall::join: responder.reply({encode(join(request)), {}}); break;
    case TableCall::push: {
      const int64_t version = push(request, message);
      responder.reply({encode(TableReply{version, request.clock + 1}), {}});
    } break;
    case TableCall::pull: pull(request, std::move(message), std::move(responder)); break;
    case TableCall::leave: {
      const std::lock_guard lock(mutex);
      if (clock.leave(request.worker)) apply_gathered();
    }
      responder.reply({encode(TableReply{}), {}});
      break;
  }
  answer_the_waiting();
}

// Compares the tables as the worker has them, and names the first difference.
TableReply TableServer::Impl::join(const TableRequest& request) {
  const Json told = Json::parse(request.text, nullptr, /*allow_exceptions=*/false);
  const Json mine = options.plan.to_json();
  if (told != mine) {
    std::string differs = "other servers, or another dealing of rows";
    const Json theirs = told.is_object() ? told.value("tables", Json::array()) : Json::array();
    for (size_t i = 0; i < std::max(theirs.size(), mine["tables"].size()); ++i) {
      const Json there = i < theirs.size() ? theirs[i] : Json("nothing"),
                 here = i < mine["tables"].size() ? mine["tables"][i] : Json("nothing");
      if (there == here) continue;
      differs = fmt::format("table {} is {} there, and {} here", i, there.dump(), here.dump());
      break;
    }
    refuse_table_call(fmt::format("worker {} has other tables than server {}: {}", request.worker,
                                  options.server, differs),
                      "the same programme and configuration everywhere");
  }
  const std::lock_guard lock(mutex);
  return {clock.updates(), clock.join(request.worker)};
}

int64_t TableServer::Impl::push(const TableRequest& request, const net::Request& message) {
  Push push{{}, request.samples, message.owner};
  for (size_t i = 0; request.samples > 0 && i < request.tables.size(); ++i) {
    const auto table = static_cast<size_t>(request.tables[i]);
    push.rows.push_back({table, spec_of(table).width, rows_in(message.tensors[2 * i]),
                         floats_in(message.tensors[2 * i + 1])});
  }
  if (options.refuses_nonfinite)
    for (const RowGradients& each : push.rows)
      servers::check_finite(spec_of(each.table), each, request.worker);
  const std::lock_guard lock(mutex);
  const PushVerdict verdict = clock.push(request.worker, request.clock);
  ++facts.pushes;
  facts.repeated_pushes += verdict == PushVerdict::repeated;
  facts.late_pushes += verdict == PushVerdict::late;
  if (verdict == PushVerdict::update) apply(push);
  if (verdict == PushVerdict::gather || verdict == PushVerdict::complete)
    gathered[request.worker] = std::move(push);
  if (verdict == PushVerdict::complete) apply_gathered();
  return clock.updates();
}

void TableServer::Impl::apply(const Push& push) {
  tables.update({servers::ShareOfMean{&push.rows}}, now());
}

// The mean over all samples, in the order of the workers.
void TableServer::Impl::apply_gathered() {
  const std::map<int, Push> pushes = std::exchange(gathered, {});  // Gone even if this fails.
  double samples = 0;
  for (const auto& [worker, push] : pushes) samples += static_cast<double>(push.samples);
  std::vector<servers::ShareOfMean> shares;
  for (const auto& [worker, push] : pushes)
    if (push.samples > 0)
      shares.push_back({&push.rows, static_cast<double>(push.samples) / samples});
  tables.update(shares, now());
}

void TableServer::Impl::pull(TableRequest request, net::Request message,
                             net::Responder responder) {
  const std::lock_guard lock(mutex);
  if (!clock.has(request.worker))
    refuse_table_call(fmt::format("worker {} pulls, and has not joined", request.worker));
  waiting.push_back({std::move(request), std::move(message), Deadline::after(options.patience),
                     std::move(responder)});
  waiting.back().request.text = {};  // It pointed into the header.
}

TableServer::Impl::Answer TableServer::Impl::answer_to(Pull pull) {
  Answer answer{.responder = std::move(pull.responder)};
  const TableRequest& request = pull.request;
  const int64_t step =
      request.begins ? clock.step_to_begin(request.worker, request.clock) : request.clock;
  answer.header = encode(TableReply{clock.updates(), step});
  for (size_t i = 0; i < request.tables.size(); ++i) {
    const int64_t rows = std::ssize(rows_in(pull.message.tensors[i])),
                  width = tables[static_cast<size_t>(request.tables[i])].spec().width;
    answer.notes.push_back(
        {"", "float32", {rows, width}, static_cast<uint64_t>(rows * width) * sizeof(float)});
  }
  answer.values = memory->place(answer.notes);
  try {
    for (size_t i = 0; i < request.tables.size(); ++i)
      tables[static_cast<size_t>(request.tables[i])].pull(
          rows_in(pull.message.tensors[i]), now(), request.peeks,
          reinterpret_cast<float*>(answer.values.places[i].data()));
  } catch (const Error& error) {  // Such as a budget.
    answer.error = error;
  }
  if (!request.peeks) ++facts.pulls;
  return answer;
}

void TableServer::Impl::answer_the_waiting() {
  std::vector<Answer> ready;
  {
    const std::lock_guard lock(mutex);
    for (auto each = waiting.begin(); each != waiting.end();) {
      const TableRequest& request = each->request;
      const bool is_ready =
          !request.begins ||
          clock.may_begin(request.worker, clock.step_to_begin(request.worker, request.clock));
      if (!is_ready && !each->responder.cancelled()) {
        ++each;
        continue;
      }
      if (!each->responder.cancelled()) ready.push_back(answer_to(std::move(*each)));
      each = waiting.erase(each);
    }
  }
  for (Answer& answer : ready) {
    net::Message message{answer.header, {}};
    for (size_t i = 0; i < answer.notes.size(); ++i)
      message.tensors.push_back({answer.notes[i], answer.values.places[i].data()});
    try {
      if (answer.error)
        answer.responder.fail(answer.error->code(), answer.error->what());
      else
        answer.responder.reply(message);
    } catch (const Error& error) {  // Such as limits of the client's.
      answer.responder.fail(error.code(), error.what());
    }
  }
}

void TableServer::Impl::look_after_the_waiting(const std::stop_token& end) {
  std::unique_lock lock(mutex);
  while (!end.stop_requested()) {
    ends.wait_for(lock, end, kTableLook, [&] { return end.stop_requested(); });
    std::vector<std::pair<net::Responder, std::string>> late;
    for (auto each = waiting.begin(); each != waiting.end();) {
      if (!each->deadline.expired()) {
        ++each;
        continue;
      }
      late.emplace_back(
          std::move(each->responder),
          fmt::format("worker {} could not begin its step {} for {} s: {}", each->request.worker,
                      each->request.clock, static_cast<double>(options.patience.count()) / 1e3,
                      clock.reason_to_wait(each->request.worker)));
      each = waiting.erase(each);
    }
    lock.unlock();
    for (auto& [responder, why] : late) responder.fail(ErrorCode::timeout, why);
    lock.lock();
  }
}

namespace {

void check_table_consistency(const plan::ConsistencyOptions& consistency, int workers) {
  check(consistency, workers);
  if (consistency.consistency == plan::Consistency::delay_compensated)
    throw Error(ErrorCode::unsupported, "parallel",
                "delay_compensated for tables: a server keeps no older values of rows", "async");
}

void check_options(TableServerOptions& options) {
  check_table_consistency(options.consistency, options.workers);
  const auto& specs = options.plan.facts.tables;
  if (options.workers < 1)
    refuse_table_call(fmt::format("a table server for {} workers", options.workers));
  if (options.server < 0 || options.server >= options.plan.facts.servers)
    refuse_table_call(fmt::format("server {} of {}", options.server, options.plan.facts.servers));
  if (options.tables.size() != specs.size() && options.tables.size() != 1)
    refuse_table_call(fmt::format("options of {} tables, and the plan has {}",
                                  options.tables.size(), specs.size()),
                      "one entry for each table, or one for all");
  // A thread that answers a slow worker holds up no other one.
  options.channel.threads =
      std::max(options.channel.threads, std::min(options.workers + 1, kMostTableThreads));
  options.channel.service = "tables";
}

}  // namespace

TableServer::TableServer(const net::Endpoint& listen, std::string token,
                         TableServerOptions options) {
  check_options(options);
  impl_ = std::make_shared<Impl>(std::move(options));
  impl_->keeper = std::jthread(
      [impl = impl_.get()](const std::stop_token& end) { impl->look_after_the_waiting(end); });
  net::RequestHandler handler;
  handler.place = [impl = impl_](const net::Head& head) {
    impl->check_tensors(servers::decode_table_request(head.header), head.tensors);
    return impl->memory->place(head.tensors);
  };
  handler.handle = [impl = impl_](net::Request request, net::Responder responder) {
    impl->handle(std::move(request), std::move(responder));
  };
  requests_ = std::make_unique<net::RequestServer>(listen, std::move(token), std::move(handler),
                                                   impl_->options.channel);
}

TableServer::~TableServer() {
  requests_.reset();
  impl_->keeper = {};
  const std::lock_guard lock(impl_->mutex);
  impl_->waiting.clear();
}

net::Endpoint TableServer::endpoint() const { return requests_->endpoint(); }
const TableServerOptions& TableServer::options() const { return impl_->options; }

TableServerFacts TableServer::facts() const {
  const std::lock_guard lock(impl_->mutex);
  TableServerFacts facts = impl_->facts;
  facts.updates = impl_->clock.updates();
  facts.tables = impl_->tables.facts();
  return facts;
}

void TableServer::change(const plan::ConsistencyOptions& consistency) {
  check_table_consistency(consistency, impl_->options.workers);
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->clock.change(consistency)) impl_->apply_gathered();
  }
  impl_->answer_the_waiting();
}

void TableServer::leave(int worker) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->clock.leave(worker)) impl_->apply_gathered();
  }
  impl_->answer_the_waiting();
}

void TableServer::with_tables(const std::function<void(std::vector<RowTable>&)>& use) {
  const std::lock_guard lock(impl_->mutex);
  use(impl_->tables.all());
}

Json TableServerFacts::to_json() const {
  Json list = Json::array();
  for (const RowTableFacts& table : tables) list.push_back(table.to_json());
  return {{"pushes", pushes}, {"late_pushes", late_pushes}, {"repeated_pushes", repeated_pushes},
          {"pulls", pulls},   {"updates", updates},         {"tables", std::move(list)}};
}

}  // namespace trireme
