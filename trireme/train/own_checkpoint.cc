#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/file_system.h>
#include <trireme/checkpoint/writer.h>
#include <trireme/data/loader.h>
#include <trireme/membership/arrival.h>
#include <trireme/parallel/model_device.h>
#include <trireme/parallel/optimizer_transfer.h>
#include <trireme/parallel/optimizer_view.h>
#include <trireme/train/loop_model.h>
#include <trireme/train/loop_record.h>
#include <trireme/train/lost_peer.h>
#include <trireme/train/own_checkpoint.h>
#include <trireme/train/own_counters.h>
#include <trireme/train/saver.h>
#include <trireme/train/state_head.h>
#include <trireme/train/state_transfer.h>
#include <trireme/train/stop_signal.h>
#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace trireme {
namespace {

struct MeetAgain {};     // The workers of an elastic job leave the loop to meet again.
struct LeaveForGood {};  // All workers leave the loop, because one was asked to stop.

at::Tensor numbers_of_default_generator() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

// While it lives, the loop is that of run_elastic(), and a request to stop ends it after its step.
class Listening {
 public:
  explicit Listening(OwnLoop& loop) : loop_(loop) {
    loop.wants_stop = StopSignal::requested;
    loop.is_elastic = true;
  }
  ~Listening() {
    loop_.wants_stop = nullptr;
    loop_.is_elastic = false;
  }
  Listening(const Listening&) = delete;

 private:
  OwnLoop& loop_;
};

class PlaceOfLoader : public LoaderPlace {
 public:
  explicit PlaceOfLoader(Loader& loader) : loader_(loader) {}
  Json position() const override {
    const plan::DataPosition now = loader_.position();
    const plan::DataPlanOptions& options = loader_.plan().options();
    return {{"epoch", now.epoch},         {"consumed", now.consumed},
            {"samples", options.samples}, {"seed", options.seed},
            {"batch", options.batch},     {"order", options.shuffle.to_json()}};
  }
  void seek(const Json& position) override {
    for (const char* const what : {"seed", "batch", "order"})
      if (const Json own = this->position()[what]; position.at(what) != own)
        log_warning("the {} of a Loader was {} in the checkpoint and is {} now: {}", what,
                    position.at(what).dump(), own.dump(),
                    std::string_view(what) == "batch"
                        ? "the next batches have other sizes"
                        : "samples of the epoch may be read twice, and others not at all");
    loader_.seek({position.at("epoch"), position.at("consumed")});
  }

 private:
  Loader& loader_;
};

}  // namespace

// The Saver sees the loop as an engine that makes no steps.
struct Checkpoint::Impl : Engine {
  World& world;
  const CheckpointOptions options;
  std::vector<std::unique_ptr<LoopModel>> trained;
  OwnCounters counters;
  std::vector<std::shared_ptr<torch::nn::Module>> modules;  // They live as long.
  std::vector<LoaderPlace*> loaders;
  std::vector<std::unique_ptr<PlaceOfLoader>> of_sources;  // Some of them.
  std::vector<LoopRecord*> records;
  std::shared_ptr<Group> group;
  std::optional<checkpoint::Writer> writer;  // Only rank 0 has it.
  std::optional<Saver> saver;
  plan::EnginePlan no_plan;
  at::Tensor numbers = numbers_of_default_generator();  // As they were saved.
  int64_t step_ = 0;
  bool has_told_first_step = false;
  bool is_stopped = false;
  const std::shared_ptr<OwnLoop> own_loop = world.own_loop();
  const std::shared_ptr<const void> teller = std::make_shared<int>();
  const std::shared_ptr<const LoopTurns::Part> part = std::make_shared<const LoopTurns::Part>(
      LoopTurns::Part{{"Checkpoint::commit()", "Checkpoint::save()", "Checkpoint::resume()"},
                      [this](const LoopTurns::Turn& turn) { answer(turn); }});
  const int64_t part_number = own_loop->add(part);
  std::optional<Json> facts_of_newest;  // While a rank without batches saves.

  // The state at a commit, in memory. The models keep theirs.
  struct Copy {
    int64_t step = -1;
    Json facts;
    at::Tensor numbers;
  } copy;

  Impl(World& the_world, CheckpointOptions the_options)
      : world(the_world), options(std::move(the_options)) {
    bind();
    ++own_loop->meetings;
  }

  ~Impl() override { --own_loop->meetings; }

  bool first() const { return group->rank() == 0; }

  void add(std::unique_ptr<LoopModel> model) {
    std::set<std::string> names;
    for (const auto& each : trained)
      for (const StateEntry& entry : each->tensors()) names.insert(name_in_file(entry, 0));
    for (const StateEntry& entry : model->tensors())
      if (names.contains(name_in_file(entry, 0)))
        throw Error(
            ErrorCode::invalid_argument, "train",
            fmt::format("Checkpoint::include(\"{}\"): two models have a tensor of the name "
                        "{}",
                        model->name, name_in_file(entry, 0)),
            "another name in include()");
    trained.push_back(std::move(model));
  }

  // COLLECTIVE. In each generation.
  void bind() {
    saver.reset();
    group = world.make_groups(1)[0];
    if (!first()) writer.reset();
    if (first() && !writer && !options.dir.empty())
      writer.emplace(
          checkpoint::Folder(options.dir, {options.keep, options.keep_every, options.keep_best},
                             checkpoint::disk(), Milliseconds(5000)),
          checkpoint::WriterOptions{
              .background = options.background,
              .mark = [this](int64_t step) { return world.mark_save(step); }});
    saver.emplace(writer ? &*writer : nullptr, std::nullopt, RunFacts{}, *group);
    has_told_first_step = false;
  }

  // Engine.
  StepOutcome step(const StepRequest&) override { throw no_step(); }
  at::Tensor evaluate(const Batch&) override { throw no_step(); }
  static Error no_step() {
    return Error(ErrorCode::internal, "train", "a checkpoint makes no steps");
  }
  DataShare data_share() const override { return {group->rank(), group->size()}; }
  void prepare_to_read() override {
    for (const auto& each : trained) each->prepare_to_read(*group);
  }
  EngineState state() override {
    EngineState all;
    Json optimizers = Json::array();
    for (const auto& each : trained) {
      each->show(all);
      optimizers.push_back(all.counters["optimizer"]);
    }
    if (!optimizers.empty()) all.counters["optimizer"] = optimizers[0];
    all.counters["loop"] = facts_of_newest ? *facts_of_newest : facts();
    all.counters["loop"]["optimizers"] = std::move(optimizers);
    return all;
  }
  void begin_load(const IncomingState& incoming) override {
    const Json& loop = incoming.counters.at("loop");
    require_as_many("models", loop.at("optimizers").size(), trained.size());
    require_as_many("loaders", loop.at("loaders").size(), loaders.size());
    counters.check(loop);
    for (size_t i = 0; i < loaders.size(); ++i)
      require_same_kind(i, loop["loaders"][i], loaders[i]->position());
    for (size_t i = 0; i < trained.size(); ++i)
      trained[i]->begin_load(loop.at("rates")[i].get<std::vector<double>>(), loop["optimizers"][i],
                             incoming, *group);
    take(loop);
  }
  static void require_same_kind(size_t number, const Json& saved, const Json& own) {
    const auto refuse = [&](const std::string& what) {
      throw Error(ErrorCode::invalid_argument, "train",
                  fmt::format("loader {} of the checkpoint {}", number + 1, what),
                  "the loaders of the run that wrote it, or another CheckpointOptions::dir");
    };
    std::set<std::string> names_of_saved, names_of_own;
    for (const auto& item : saved.items()) names_of_saved.insert(item.key());
    for (const auto& item : own.items()) names_of_own.insert(item.key());
    if (names_of_saved != names_of_own)
      refuse(
          "is one of make_data_loader, or a trireme::Loader, and this programme's is the other");
    if (own.contains("samples") && own["samples"] != saved["samples"])
      refuse(fmt::format("has {} samples in an epoch, and this programme's has {}",
                         saved["samples"].dump(), own["samples"].dump()));
  }
  void end_load() override {
    for (const auto& each : trained) each->end_load();
  }
  std::vector<double> rates() const override { return {}; }
  void set_rates(std::span<const double>) override {}
  const plan::EnginePlan& plan() const override { return no_plan; }

  // Everything but tensors; the same on every rank.
  Json facts() const {
    Json rates = Json::array(), engines = Json::array(), places = Json::array(),
         recorded = Json::array();
    for (const auto& each : trained) {
      rates.push_back(each->view.rates());
      engines.push_back(each->counters());
    }
    for (const auto* const loader : loaders) places.push_back(loader->position());
    for (const auto* const record : records) recorded.push_back(record->steps());
    Json all = {{"rates", std::move(rates)},
                {"engines", std::move(engines)},
                {"loaders", std::move(places)},
                {"records", std::move(recorded)},
                {"ranks", group->size()}};
    counters.show(all);
    return all;
  }
  void take(const Json& loop) {
    // Checkpoints of before there were replicas have none.
    const Json engines = loop.value("engines", Json::array());
    for (size_t i = 0; i < trained.size(); ++i) {
      trained[i]->view.set_rates(loop.at("rates")[i].get<std::vector<double>>());
      if (i < engines.size()) trained[i]->load_counters(engines[i]);
    }
    counters.take(loop);
    for (size_t i = 0; i < loaders.size(); ++i) loaders[i]->seek(loop.at("loaders")[i]);
    // Checkpoints of before there were records have none.
    const Json recorded = loop.value("records", Json::array());
    for (size_t i = 0; i < std::min(records.size(), recorded.size()); ++i)
      records[i]->go_on_from(recorded[i].get<int64_t>());
    ranks_of_numbers = loop.at("ranks");
  }
  int ranks_of_numbers = 0;

  StateView of_run() { return {whole("random", numbers, StateKind::rank)}; }

  static constexpr int64_t kCommitTurn = 0, kSaveTurn = 1, kResumeTurn = 2;

  // Takes part without a batch.
  void answer(const LoopTurns::Turn& turn) {
    if (turn.what == kResumeTurn)
      throw Error(ErrorCode::invalid_argument, "train",
                  "Checkpoint::resume() on a rank, while another one waits in join()",
                  "join() on all ranks, and resume() behind it");
    if (turn.what == kSaveTurn)
      save(turn.facts[0]);
    else
      commit();
  }

  // COLLECTIVE. Ranks without batches, of which rank 0 may be one, take the state of another.
  void take_newest() {
    if (!own_loop->turns || !own_loop->turns->some_have_none()) return;
    const int root = own_loop->turns->newest();
    for (const auto& each : trained) {
      broadcast_tensors(*group, each->state.parameters, root);
      broadcast_tensors(*group, each->state.buffers, root);
      take_optimizer_of(root, *group, each->optimizer, each->state.parameters);
    }
    facts_of_newest.emplace(broadcast_value(*group, facts(), root));
  }

  void save(int64_t step) {
    take_newest();
    prepare_to_read();
    numbers.copy_(numbers_of_default_generator());
    EngineState all = state();
    all.tensors = joined(std::move(all.tensors), of_run());
    Progress progress;
    progress.step = step;
    saver->save(all, progress);
    facts_of_newest.reset();
    step_ = step;
  }

  // The remedies of `trireme train` are words of its command line.
  auto restore() {
    try {
      return saver->restore(*this, of_run());
    } catch (const Error& error) {
      const auto [what, remedy] = parts_of(error);
      if (remedy.find("--fresh") == std::string::npos) throw;
      throw Error(error.code(), "train", what,
                  "the same models, optimizers and calls of Checkpoint::include() as in the run "
                  "that wrote it, and with virtual shards the same number of them and of threads, "
                  "or another CheckpointOptions::dir");
    }
  }

  int64_t resume() {
    const auto restored = restore();
    step_ = restored ? restored->progress.step : 0;
    if (restored) draw_from(numbers, /*are_own=*/ranks_of_numbers == group->size());
    world.own_loop()->go_on_from(step_);
    return step_;
  }

  // A rank that has no numbers of its own takes those of rank 0, and others of them.
  void draw_from(const at::Tensor& saved, bool are_own) const {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_state(saved.clone());
    if (!are_own && group->rank() > 0)
      generator.set_current_seed(mix64(generator.current_seed(),
                                       static_cast<uint64_t>(group->rank()),
                                       static_cast<uint64_t>(step_)));
    draw_anew_on_devices(generator.current_seed());
  }
  // The numbers of a device's own generator are not saved: they begin anew, by rank and step.
  void draw_anew_on_devices(uint64_t seed) const {
    for (const auto& each : trained) {
      const at::Device device = device_of(each->state.parameters);
      if (device.is_cpu()) continue;
      at::Generator generator = at::globalContext().defaultGenerator(device);
      const std::lock_guard lock(generator.mutex());
      generator.set_current_seed(
          mix64(seed, static_cast<uint64_t>(group->rank()), static_cast<uint64_t>(step_)));
    }
  }

  void keep() {
    for (const auto& each : trained) each->keep();
    copy.facts = facts();
    copy.numbers = numbers_of_default_generator();
    copy.step = step_;
  }

  // COLLECTIVE. The newest state that a worker has in memory, which worker 0 has; else the newest
  // checkpoint; else the beginning.
  void go_on() {
    const int64_t newest = world.is_elastic() ? world.step_of_generation() : -1;
    if (newest < 0) {
      resume();
    } else {
      const bool has_own = copy.step == newest;
      const Json told = broadcast_value(*group, {{"facts", copy.facts}, {"step", copy.step}});
      take(told["facts"]);
      for (const auto& each : trained) each->go_on_from_kept(*group, has_own);
      step_ = told["step"];
      draw_from(has_own ? copy.numbers : numbers_of_default_generator(), has_own);
      world.own_loop()->go_on_from(step_);
    }
    for (const auto& each : trained)
      for (const auto& [name, tensor] : each->state.parameters) tensor.mutable_grad().reset();
    // A rank that is still asked to stop tells it again in the next step.
    own_loop->regroup = own_loop->stop = false;
    if (world.is_elastic()) keep();
  }

  // A loop that continued without its loader would begin an epoch anew, and use samples twice.
  void require_loader() const {
    const void* const loader = own_loop->batch.loader;
    if (!loader || (!world.is_elastic() && options.dir.empty())) return;
    for (const LoaderPlace* const each : loaders)
      if (each == loader) return;
    throw Error(ErrorCode::invalid_argument, "train",
                fmt::format("rank {}, step {}: the batch in hand is of a loader that the "
                            "checkpoint does not have: a loop that continues would read samples "
                            "of its epoch again",
                            group->rank(), step_ + 1),
                "checkpoint.include(*loader) before the loop");
  }

  void commit() {
    require_loader();
    own_loop->begin(part_number, kCommitTurn);
    ++step_;
    for (const auto& each : trained) each->look_at_awaited_groups();
    own_loop->end_step(teller, OwnLoop::Teller::checkpoint, step_);
    // Alone no other rank tells of it in a step.
    const bool stops =
        own_loop->stop || (world.size() == 1 && own_loop->wants_stop && own_loop->wants_stop());
    const bool is_due = options.every_steps > 0 && step_ % options.every_steps == 0;
    if ((is_due || stops) && !options.dir.empty()) {
      own_loop->enter(Phase::checkpoint);
      save(step_);
    }
    if (stops && own_loop->wants_stop) {
      own_loop->stop = true;
      throw LeaveForGood();
    }
    own_loop->enter(Phase::data);
    if (!world.is_elastic()) return;
    keep();
    if (!std::exchange(has_told_first_step, true)) world.tell_first_step(step_);
    // Alone nobody tells of it in a step.
    if (world.own_loop()->regroup || (world.size() == 1 && world.regroup_wanted()))
      throw MeetAgain();
  }

  // The newest state has no groups of parameters that were added in the step that is given up. The
  // loop adds them again, and processes that join do not have them yet.
  void drop_groups_of_this_step() {
    if (copy.step < 0 || copy.step != world.step_of_generation()) return;
    for (size_t i = 0; i < trained.size(); ++i) {
      auto& groups = trained[i]->optimizer.param_groups();
      const size_t kept = copy.facts.at("rates")[i].size();
      if (groups.size() > kept)
        log_warning(
            "step {} was given up, and so are {} groups of parameters that it had added to the "
            "optimizer of {}: the loop has to add them again when it comes to that step",
            copy.step + 1, groups.size() - kept, trained[i]->shown());
      while (groups.size() > kept) groups.pop_back();
    }
  }

  // The next generation: engines first, as they were made.
  void rebind() {
    drop_groups_of_this_step();
    for (const auto& each : world.own_loop()->rebind)
      if (const auto again = each.lock()) (*again)();
    bind();
  }
};

Checkpoint::Checkpoint(World& world, std::shared_ptr<torch::nn::Module> module,
                       torch::optim::Optimizer& optimizer, CheckpointOptions options)
    : impl_(std::make_unique<Impl>(world, std::move(options))) {
  include_model("", std::move(module), optimizer);
}
Checkpoint::Checkpoint(World& world, DataParallel& replica, CheckpointOptions options)
    : impl_(std::make_unique<Impl>(world, std::move(options))) {
  include("", replica);
}
Checkpoint::~Checkpoint() = default;

void Checkpoint::include_model(const std::string& name, std::shared_ptr<torch::nn::Module> module,
                               torch::optim::Optimizer& optimizer) {
  if (is_of_a_replica(optimizer))
    throw Error(
        ErrorCode::invalid_argument, "train",
        "the optimizer of a DataParallel without its DataParallel: a checkpoint would lack "
        "what the DataParallel keeps",
        "trireme::Checkpoint(world, replica, options), or checkpoint.include(name, "
        "replica)");
  impl_->add(std::make_unique<LoopModel>(name, *module, optimizer));
  impl_->modules.push_back(std::move(module));
}
void Checkpoint::include(const std::string& name, DataParallel& replica) {
  if (!is_of_a_replica(replica.optimizer()))
    throw Error(ErrorCode::invalid_argument, "train",
                "a DataParallel that was made with a Group, which knows nothing of the loop",
                "one that was made with the World, and stays where it is");
  impl_->add(std::make_unique<LoopModel>(name, replica));
}
void Checkpoint::include(torch::optim::LRScheduler& schedule) { impl_->counters.add(schedule); }
void Checkpoint::include(torch::optim::ReduceLROnPlateauScheduler& schedule) {
  impl_->counters.add(schedule);
}
void Checkpoint::include(const std::string& name, double& number) {
  impl_->counters.add(name, number);
}
void Checkpoint::include(const std::string& name, int64_t& number) {
  impl_->counters.add(name, number);
}
void Checkpoint::include(LoaderPlace& loader) { impl_->loaders.push_back(&loader); }
void Checkpoint::include(Loader& loader) {
  impl_->of_sources.push_back(std::make_unique<PlaceOfLoader>(loader));
  include(*impl_->of_sources.back());
}
void Checkpoint::include(LoopRecord& record) { impl_->records.push_back(&record); }
int64_t Checkpoint::resume() {
  impl_->own_loop->begin(impl_->part_number, Impl::kResumeTurn);
  return impl_->resume();
}
void Checkpoint::save(int64_t step) {
  impl_->own_loop->begin(impl_->part_number, Impl::kSaveTurn, {step});
  impl_->save(step);
}
void Checkpoint::commit() { impl_->commit(); }
int64_t Checkpoint::step() const { return impl_->step_; }
bool Checkpoint::stopped() const { return impl_->is_stopped; }

bool run_elastic(World& world, Checkpoint& checkpoint, const std::function<void()>& loop) {
  Checkpoint::Impl& state = *checkpoint.impl_;
  const StopSignal until_the_end;
  const Listening listens(*world.own_loop());
  // The number of generations in a row without a commit.
  int in_vain = 0;
  int64_t before = -1;
  std::string reason;
  for (bool is_bound = true;; is_bound = false) {
    try {
      if (!is_bound) {
        if (!world.regroup(state.copy.step, reason)) return false;
        reason.clear();
        state.rebind();
      }
      state.go_on();
      loop();
      state.group->barrier();
      return true;
    } catch (const LeaveForGood&) {
      log_info("asked to stop: the loop ends after step {}", state.step_);
      state.is_stopped = true;
      return true;
    } catch (const MeetAgain&) {
      in_vain = 0;
    } catch (const std::exception& error) {
      if (!world.is_elastic() || dynamic_cast<const membership::NoGeneration*>(&error) ||
          !is_of_lost_peer(error, world))
        throw;
      in_vain = state.copy.step > before ? 0 : in_vain + 1;
      before = state.copy.step;
      if (in_vain == kGenerationsInVain) throw;
      reason = parts_of(error).what;  // Its remedy is for jobs that end.
      log_warning("step {} abandoned: {}", state.step_ + 1, reason);
    }
  }
}

}  // namespace trireme
