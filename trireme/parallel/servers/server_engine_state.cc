// The engine of strategy parameter_server: its servers, and its state.
#include <ATen/core/Tensor.h>
#include <torch/optim/sgd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/servers/server_engine_impl.h>
#include <trireme/plan/strategy.h>
#include <algorithm>
#include <map>
#include <thread>
#include <utility>

namespace trireme {
namespace {

constexpr Milliseconds kOneTry{2000};  // To connect to all servers.
constexpr Milliseconds kBetweenTries{20};
constexpr double kMuchMomentum = 0.5;

std::vector<NamedTensor> trained_of(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> all;
  for (const NamedTensor& each : parameters)
    if (each.tensor.requires_grad()) all.push_back(each);
  return all;
}

plan::EnginePlan plan_of(const EngineSetting& setting, const ModuleState& model) {
  plan::DataParallelFacts facts;
  facts.placement = setting.group->placement();
  facts.parameters = specs_of(model.parameters);
  facts.ps = setting.servers->options;
  return plan::plan_engine(setting.strategy, facts);
}

}  // namespace

ServerEngine::ServerEngine(const EngineSetting& setting)
    : setting_(setting),
      access_(*setting.servers),
      model_(state_of(*setting.model.module)),
      optimizer_(setting.optimizer(model_.parameters)),
      optimizer_view_(*optimizer_, model_.parameters),
      passes_(setting_),
      plan_(plan_of(setting, model_)),
      restorer_(access_.find_again),
      tables_(setting.tables, access_.options.servers) {
  if (kind_of(*optimizer_) == "opaque")
    throw Error(ErrorCode::unsupported, "parallel",
                "an optimizer of a kind of its own on parameter servers, which read and write "
                "its state in parts",
                "SGD, Adam, AdamW, RMSprop or Adagrad");
  agree(group(), {{"strategy", setting_.strategy},
                  {"model", facts_of(model_)},
                  {"optimizer", facts_of(*optimizer_)},
                  {"plan", plan_.digest()}});
  broadcast_tensors(group(), model_.parameters);
  broadcast_tensors(group(), model_.buffers);
  warn_of_momentum();
  watch_gradients();
  connect();
}

// Gradients that are late work like momentum ("Asynchrony begets momentum", Mitliagkas et al.
// 2016, arXiv 1605.09774), and both together may be too much.
void ServerEngine::warn_of_momentum() const {
  const bool are_late = access_.options.consistency.consistency != plan::Consistency::sync;
  if (!are_late || group().size() == 1 || group().rank() > 0 || access_.generation > 0) return;
  const auto* const sgd =
      dynamic_cast<const torch::optim::SGDOptions*>(&optimizer_->param_groups().at(0).options());
  if (sgd == nullptr || sgd->momentum() < kMuchMomentum) return;
  log_warning(
      "workers compute at their own pace, which works like momentum, and optimizer.momentum is "
      "{}: "
      "training may diverge at a learning rate that is right for one device; try: a tenth of "
      "optimizer.lr, or optimizer.momentum=0",
      sgd->momentum());
}

// At their own pace workers clip after backward, by the norm of all gradients.
void ServerEngine::watch_gradients() {
  if (!access_.options.overlap || (own_pace() && setting_.options.clip_norm > 0)) return;
  std::vector<at::Tensor> trained;
  for (const NamedTensor& each : trained_of(model_.parameters)) trained.push_back(each.tensor);
  watch_ = std::make_unique<GradientWatch>(
      trained, [this](int number) { client_->gradient_is_complete(number); });
}

// A server may be replaced meanwhile, and then has another address.
void ServerEngine::connect() {
  const Deadline limit = deadline();
  while (!client_) {
    try {
      ServerClientOptions options{.placement = *plan_.servers,
                                  .worker = group().rank(),
                                  .generation = access_.generation,
                                  .workers = group().size(),
                                  .compression = setting_.options.compression,
                                  .tables = tables_.plan(),
                                  .is_lost = access_.is_lost,
                                  .why_lost = access_.why_lost,
                                  .look = access_.look,
                                  .channel = access_.channel,
                                  .early_bytes = access_.early_bytes};
      client_ =
          std::make_unique<ServerClient>(access_.find(limit), access_.token, std::move(options),
                                         trained_of(model_.parameters), Deadline::after(kOneTry));
    } catch (const Error& error) {
      const bool may_come =
          error.code() == ErrorCode::timeout || error.code() == ErrorCode::peer_lost;
      if (!may_come || limit.expired()) throw;
      access_.look();
      std::this_thread::sleep_for(kBetweenTries);
    }
  }
  tables_.connect(*client_, group().rank(), access_.options.patience);
  begin_with_own_values();
}

// The values of rank 0 are the first ones. Servers that had values before keep them.
void ServerEngine::begin_with_own_values() {
  const auto& versions = client_->versions_at_join();
  if (group().rank() == 0 && std::ranges::count(versions, -1) == std::ssize(versions))
    client_->initialise(deadline());
  use_those_of_first(*client_, group(), deadline());
}

// COLLECTIVE. Gets the parameters for the first step. If no state was loaded, training begins: the
// servers may still have the model of workers that are all gone.
void ServerEngine::begin() {
  const std::vector<int64_t> versions_here = client_->versions();
  if (std::ranges::min(versions_here) >= 0) return;
  // The state is that of the servers, but for pieces whose server was lost since they were pulled.
  if (std::ranges::max(versions_here) >= 0) return client_->pull_the_missing(deadline());
  found_by_first(group(), [&] {
    const auto& versions = client_->versions_at_join();
    const bool are_new = std::ranges::count(versions, versions[0]) == std::ssize(versions) &&
                         versions[0] <= 0 && !client_->has_a_blank_server();
    if (!are_new) write_own_state();
    return Json();
  });
  client_->refresh(deadline());
}

void ServerEngine::begin_load(const IncomingState& incoming) {
  writes_ = incoming.model_is_new;
  if (writes_) {
    broadcast_tensors(group(), model_.parameters);
    broadcast_tensors(group(), model_.buffers);
  } else if (const Json own = incoming.counters.value("servers", Json()); own.is_object()) {
    const auto versions = own.at("versions").get<std::vector<int64_t>>();
    writes_ = require_servers_with(versions);
    client_->have_versions(versions);
    if (!writes_ && own_pace() == nullptr) require_rows_of(std::ranges::max(versions));
  }
  saved_in_ = incoming.path;
  optimizer_view_.begin_load(incoming.counters, incoming.tensors);
}

// COLLECTIVE. If servers that were replaced were the only ones with some pieces, all go back to a
// checkpoint. Before the first update the worker has all that such a server had: returns true, and
// the servers get it.
bool ServerEngine::require_servers_with(const std::vector<int64_t>& versions) {
  const Json found = found_by_first(group(), [&] {
    const std::vector<int64_t>& at_join = client_->versions_at_join();
    std::vector<std::string> lost;
    for (size_t i = 0; i < versions.size(); ++i)
      if (at_join[i] < versions[i]) lost.push_back(fmt::format("server {}", i));
    const bool are_first = std::ranges::max(at_join) == 0 && client_->has_a_blank_server();
    return Json{{"lost", lost}, {"writes", are_first}};
  });
  const auto lost = found.at("lost").get<std::vector<std::string>>();
  if (lost.empty()) return found.at("writes");
  torn_ = true;
  throw Error(
      ErrorCode::peer_lost, "parallel",
      fmt::format("nobody has the pieces of {} any more: another process has the task, and "
                  "no copy was left",
                  fmt::join(lost, ", ")),
      "nothing: the job continues from the newest checkpoint");
}

// COLLECTIVE. A worker that was lost may have brought about an update of which the others do not
// know. They compute its step again, from the rows before it.
void ServerEngine::require_rows_of(int64_t version) {
  if (!tables_.any() || version < 0) return;
  const Json have =
      found_by_first(group(), [&] { return Json(client_->rows_are_of(version, deadline())); });
  if (have.get<bool>()) return client_->tell_again_after(version);
  torn_ = true;
  throw Error(ErrorCode::peer_lost, "parallel",
              fmt::format("some server does not have the rows of embedding tables as they were "
                          "after update {}",
                          version),
              "nothing: the job continues from the newest checkpoint");
}

void ServerEngine::end_load() {
  optimizer_view_.end_load();
  if (!writes_) return;
  found_by_first(group(), [&] {
    write_own_state();
    return Json();
  });
  if (tables_.any())
    found_by_first_in_time(group(), [&] {
      if (!saved_in_.empty()) tables_.load(saved_in_);
      return Json();
    });
  client_->have_versions(std::vector<int64_t>(client_->versions().size(), -1));
  client_->refresh(deadline());
}

// The clock has judged all pushes of workers at their own pace; of steps together all servers have
// as many.
Json ServerEngine::facts_for_report() {
  return found_by_first(group(), [&] {
    const std::vector<Json> all = client_->facts(deadline());
    const Json& first = all.at(0);
    int64_t failovers = 0;
    std::map<int, double> cpu_seconds;  // [server]
    for (const Json& each : all) {
      failovers += each.at("failovers").get<int64_t>();
      cpu_seconds[each.at("server")] = each.at("cpu_seconds");
    }
    double all_cpu_seconds = 0;
    for (const auto& [server, seconds] : cpu_seconds) all_cpu_seconds += seconds;
    Json facts = {{"servers", plan_.servers->facts.servers},
                  {"pushes", first.at("pushes")},
                  {"late_pushes", first.at("late_pushes")},
                  {"pulls", first.at("pulls")},
                  {"updates", first.at("updates")},
                  {"staleness", first.at("staleness")},
                  {"replication", plan_.servers->facts.replication},
                  {"failovers", failovers},
                  {"cpu_seconds", all_cpu_seconds}};
    if (tables_.any()) facts["tables"] = tables_.facts(deadline());
    return Json{{"parameter_server", std::move(facts)}};
  });
}

}  // namespace trireme
