#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/base/unix_time.h>
#include <trireme/comm/breakable.h>
#include <trireme/tensor/autocast.h>
#include <trireme/tensor/parameter_average.h>
#include <trireme/tensor/replica_random.h>
#include <trireme/train/evaluate.h>
#include <trireme/train/first_lines.h>
#include <trireme/train/full_disk.h>
#include <trireme/train/injector.h>
#include <trireme/train/replica_check.h>
#include <trireme/train/replica_run.h>
#include <trireme/train/saver.h>
#include <trireme/train/stop_signal.h>
#include <chrono>
#include <cmath>

namespace trireme {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}
constexpr Milliseconds kFolderTimeout{5000};
constexpr Milliseconds kPartsAfterAGeneration{30000};

}  // namespace

struct ReplicaRun::Impl {
 public:
  explicit Impl(const ReplicaSetting& setting)
      : world_(setting.world),
        options_(setting.options),
        job_(setting.job),
        train_(setting.train),
        test_(setting.test),
        pss_(setting.pss),
        leads_worker_(setting.leads_worker),
        random_(mix64(setting.options.seed, uint64_t{0})),
        strategy_(find_strategy(setting.options.strategy)),
        model_(make_model()),
        tensors_(trireme::state_of(*model_.module)) {}

  End run(std::shared_ptr<Group> group, std::shared_ptr<Group> norm_group) {
    bind(std::move(group), std::move(norm_group));
    const bool begins_to_tell = first() && !std::exchange(announced_, true);
    if (begins_to_tell) announce_start();
    go_on(begins_to_tell);
    if (!std::exchange(started_, true)) start();
    // The last generation may have been interrupted while it ended.
    if (went_on_ && (is_done() || stopping_)) {
      save_at_the_end();
      announce_saved();
    }
    while (!is_done() && !stopping_ && !regroup_) step();
    if (regroup_ && !is_done() && !stopping_) {
      save_slices();
      return End::regroup;
    }
    finish();
    return End::finished;
  }

  bool is_torn() const { return engine_ && engine_->is_torn(); }
  int64_t committed() const { return has_state_ ? progress_.step : -1; }
  // Releases everything that lasts only one generation.
  void unbind() {
    if (is_torn()) {
      bound_ = has_state_ = false;  // The caller does not continue with this object.
    } else if (std::exchange(bound_, false)) {
      kept_ = keep();
      if (in_step_) restore_buffers();
    } else {
      put_back();
    }
    // A lost worker may only show when all meet again.
    for (auto* const writer : {&writer_, &part_writer_})
      if (*writer)
        (*writer)->expect_no_more(world_.lost_a_worker() ? checkpoint::Writer::kAfterALostWorker
                                                         : kPartsAfterAGeneration);
    saver_.reset();
    loader_.reset();
    engine_.reset();
    group_.reset();
    norm_group_.reset();
  }
  const ReplicaResult& result() const { return result_; }
  std::map<std::string, std::string> facts_of_model() const { return facts_of(tensors_); }

 private:
  // Makes a generation's engine, loader and saver. Then every replica gets the state of rank 0,
  // from its memory or from the newest checkpoint.
  void bind(std::shared_ptr<Group> group, std::shared_ptr<Group> norm_group) {
    group_ = std::move(group);
    norm_group_ = std::move(norm_group);
    regroup_ = in_step_ = false;
    is_first_step_ = true;
    updated_elements_ = 0;
    evaluated_step_ = -1;
    if (has_state_ && progress_.step < world_.step_of_generation()) put_aside();
    make_engine();
    const auto parts = take_folder();
    checkpoint::Writer* const writer = writer_                     ? &*writer_
                                       : parts && parts->index > 0 ? &*part_writer_
                                                                   : nullptr;
    saver_.emplace(
        writer, parts,
        RunFacts{train_->size(), options_.seed, options_.batch, config(), tensors_.aliases},
        *group_, let_all_write());
    if (!injector_ && !options_.inject.faults.empty())
      injector_.emplace(options_.inject.faults, options_.inject.marks, fault_actions());
    const bool stop = context_ && context_->stop;
    context_.emplace(TrainContext{group_->rank(), group_->size(), *model_.module, stop});
    if (base_rates_.empty()) {
      batches_per_epoch_ = plan::DataPlan(plan_options(options_.batch)).batches_per_epoch();
      total_steps_ = options_.steps >= 0 ? options_.steps : options_.epochs * batches_per_epoch_;
      fill_schedule();
      const double scale = rate_scale(options_.rate_scaling, options_.batch);
      for (const double rate : engine_->rates()) base_rates_.push_back(rate * scale);
      if (options_.ema_decay > 0) average_.emplace(options_.ema_decay, trainable());
    }
    resume();
    kept_.reset();
    aside_.clear();
    bound_ = has_state_ = true;
  }

  // Returns the configuration for checkpoints. Programs that give none still have the order of
  // their samples in it.
  Json config() const {
    Json config = options_.config;
    if (!config.contains("data.shuffle"))
      config["data.shuffle"] = options_.shuffle ? "true" : "false";
    if (options_.shuffle && train_->size() > plan::kLargestOrderTable)
      config["data.order"] = "keyed";
    return config;
  }

  // COLLECTIVE. Makes a new engine. It contains nothing of the old one: no optimizer state, errors
  // of compression or loss scale.
  void make_engine() {
    engine_.reset();
    updated_.clear();
    for (const auto& [name, tensor] : tensors_.parameters)
      // The gradients may come from a step that was abandoned.
      tensor.mutable_grad().reset();
    engine_ = strategy_.make(engine_setting());
    if (!engine_)
      throw Error(ErrorCode::invalid_argument, "train",
                  fmt::format("strategy '{}' made no engine", options_.strategy),
                  "a function that returns one, such as make_engine<Kind>");
  }

  // Waits for the lock, because a rank 0 that was ended a moment ago may still exist. If another
  // rank 0 came too late for this generation, it holds the folder and has newer state; it joins
  // the next generation.
  checkpoint::Folder open_folder() {
    const CheckpointOptions& keep = options_.checkpoint;
    const checkpoint::RetentionOptions retention{keep.keep, keep.keep_every, keep.keep_best};
    if (!world_.is_elastic() || world_.identity().generation == 0)
      return checkpoint::Folder(keep.dir, retention, disk_);
    try {
      return checkpoint::Folder(keep.dir, retention, disk_, kFolderTimeout);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;
      throw Error(ErrorCode::peer_lost, "train", brief(error), "nothing: the workers meet again");
    }
  }

  // Returns the parts of saves; empty: rank 0 writes alone. Rank 0 keeps the folder from one
  // generation to the next, so a save in progress continues while the job regroups.
  std::optional<PartsOfSaves> take_folder() {
    const CheckpointOptions& keep = options_.checkpoint;
    if (!first()) writer_.reset();
    if (keep.dir.empty()) return {};
    if (first() && !writer_) writer_.emplace(open_folder(), writing());
    // If replicas differ, so does momentum, and parts of several ranks would not
    // fit together.
    if (options_.local.steps > 1 || !strategy_.features.equal_replicas) return {};
    return take_parts(keep.writers == "ranks");
  }
  std::optional<PartsOfSaves> take_parts(bool of_all_ranks) {
    auto parts = agree_on_parts(of_all_ranks, options_.checkpoint.dir, disk_, *group_);
    const bool has_one = parts && parts->index > 0;
    if (has_one && (!part_writer_ || part_writer_->path() != parts->folder))
      part_writer_.emplace(parts->folder, disk_, writing());
    return parts;
  }
  checkpoint::WriterOptions writing() {
    return {.background = options_.checkpoint.background,
            .others_live = [this] { return !world_.lost_a_worker(); },
            .mark = [this](int64_t step) { return world_.mark_save(step); },
            .copy_threads = has_host_to_itself(*group_) ? 2 : 1};
  }
  Saver::LetAllWrite let_all_write() {
    if (options_.checkpoint.dir.empty()) return {};
    return [this] {
      auto parts = take_parts(/*of_all_ranks=*/true);
      checkpoint::Writer* const writer = first() ? &*writer_ : parts ? &*part_writer_ : nullptr;
      return std::pair(writer, std::move(parts));
    };
  }

  // Keeps the state. The tensors stay where they are.
  RunState keep() {
    RunState kept;
    kept.progress = progress_;
    kept.progress.guard = guard_.state();
    const EngineState state = whole_state();
    kept.counters = state.counters;
    kept.in_slices = saver_ && saver_->has_slices();
    for (const StateEntry& entry : state.tensors) {
      if (is_of_one_rank(entry.kind))
        kept.own.push_back(entry);
      else if (!is_of_model(entry.kind))
        kept.tensors.by_name.emplace(name_in_file(entry, 0), entry.tensor);
      kept.in_slices = kept.in_slices || !entry.slice.is_whole();
    }
    return kept;
  }

  // Copies the state that rank 0's newer state will overwrite. If rank 0 is lost during the
  // transfer, this replica's state is still whole.
  void put_aside() {
    aside_.clear();
    for (const auto* const part : {&tensors_.parameters, &tensors_.buffers})
      for (const auto& [name, tensor] : *part)
        aside_.emplace_back(tensor, tensor.detach().clone());
    if (average_)
      for (const at::Tensor& average : average_->averages())
        aside_.emplace_back(average, average.clone());
  }
  void put_back() {
    for (auto& [tensor, value] : aside_) tensor.set_data(value);
    aside_.clear();
  }

  // Copies the buffers, because an abandoned step may have moved running statistics.
  void remember_buffers() {
    if (!world_.is_elastic()) return;
    before_step_ = copies_of(tensors_.buffers);
    in_step_ = true;
  }
  void restore_buffers() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < before_step_.size(); ++i)
      tensors_.buffers[i].tensor.copy_(before_step_[i]);
  }

  bool first() const { return group_->rank() == 0; }
  // Counts steps or data, because a skipped step uses data and has no number.
  bool is_done() const {
    return options_.steps >= 0 ? progress_.step >= total_steps_
                               : progress_.position.epoch >= options_.epochs;
  }
  std::vector<at::Tensor> trainable() const {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : tensors_.parameters)
      if (tensor.requires_grad()) tensors.push_back(tensor);
    return tensors;
  }
  void phase(Phase phase, int64_t step) {
    if (leads_worker_) world_.set_phase(phase, step);
  }
  // Announces a phase between steps. It belongs to the last committed step.
  void phase(Phase now) { phase(now, progress_.step); }
  // Announces a phase of the step under way. Steps count from 1.
  void step_phase(Phase now) {
    phase(now, progress_.step + 1);
    strike(now, progress_.step + 1);
  }
  // Applies injected faults that are due here.
  void strike(Phase now, int64_t step) {
    if (injector_) injector_->at(group_->rank(), now, step);
  }
  FaultActions fault_actions() {
    FaultActions actions = process_actions();
    actions.corrupt = [this](int64_t step) {
      flip_a_bit(updated_parameters(), static_cast<uint64_t>(step));
    };
    if (dynamic_cast<comm::Breakable*>(group_.get()))
      actions.drop_link = [this](int peer) {
        dynamic_cast<comm::Breakable&>(*group_).drop_link(peer);
      };
    if (!options_.checkpoint.dir.empty()) actions.fill_disk = [this] { disk_.fill(); };
    return actions;
  }

  // Makes the model. The initial weights are the same on every replica and under every strategy:
  // they are drawn from the seed alone and then converted.
  Model make_model() {
    Model model = job_.model();
    check(model);
    prepare_for_training(*model.module, options_.dtype);
    return model;
  }

  DataParallelOptions engine_options() const {
    return {.clip_norm = options_.clip_norm,
            .gradient_norm = options_.clip_norm > 0 || guard_.needs_norm(),
            .share_parameters = options_.share_parameters && options_.ema_decay == 0,
            .guard = {.wanted = world_.is_elastic()},
            .buckets = options_.buckets,
            .compression = options_.compression,
            .local = options_.local,
            .virtual_shards = options_.virtual_shards,
            .loss_scaling = options_.loss_scaling,
            .accept = accept()};
  }
  // Returns an empty function if no spikes are looked for: then the update need not wait for the
  // loss and the norm.
  std::function<bool(double loss, double gradient_norm)> accept() const {
    if (options_.guard.spike == 0) return {};
    return
        [this](double loss, double gradient_norm) { return guard_.accepts(loss, gradient_norm); };
  }

  EngineSetting engine_setting() {
    EngineSetting setting;
    setting.strategy = options_.strategy;
    setting.group = group_;
    setting.norm_group = norm_group_;
    setting.model = model_;
    setting.optimizer = job_.optimizer;
    setting.loss = [this](const at::Tensor& output, const Batch& batch) {
      return loss_of(job_, output, batch);
    };
    setting.options = engine_options();
    setting.autocast = options_.autocast;
    setting.seed = options_.seed;
    setting.random = &random_;
    setting.enter = [this](Phase phase) { step_phase(phase); };
    setting.wishes = [this] {
      return Wishes{context_->stop || StopSignal::requested(), world_.regroup_wanted()};
    };
    return setting;
  }

  // The tensors of the run beside the engine's.
  StateView averages() const {
    StateView view;
    if (!average_) return view;
    size_t next = 0;
    for (const auto& [name, tensor] : tensors_.parameters)
      if (tensor.requires_grad())
        view.push_back(whole(name, average_->averages()[next++], StateKind::average));
    return view;
  }
  // The same tensors during a generation.
  const std::vector<NamedTensor>& updated_parameters() {
    if (updated_.empty()) updated_ = updated_tensors(engine_->state().tensors);
    return updated_;
  }
  EngineState whole_state() {
    EngineState state = engine_->state();
    const StateView of_run = averages();
    state.tensors.insert(state.tensors.end(), of_run.begin(), of_run.end());
    return state;
  }

  LoaderOptions loader_options() const {
    LoaderOptions loader;
    loader.batch = resize_.batch();
    loader.seed = options_.seed;
    loader.shuffle = options_.shuffle;
    loader.drop_last = options_.drop_last;
    loader.virtual_shards = options_.virtual_shards;
    loader.threads = options_.loader_threads;
    loader.prefetch = options_.prefetch;
    loader.dtype = options_.dtype;
    return loader;
  }

  plan::DataPlanOptions plan_options(int64_t batch) const {
    return {.samples = train_->size(),
            .batch = batch,
            .seed = options_.seed,
            .shuffle = options_.shuffle,
            .drop_last = options_.drop_last,
            .virtual_shards = options_.virtual_shards};
  }

  // Sets the generation's number of workers. Returns true if the batch or the learning rate
  // changes.
  bool resize() {
    const bool changes = resize_.set_workers(group_->size(), progress_.step);
    progress_.resize = resize_.state();
    const DataShare share = engine_->data_share();
    loader_.emplace(train_, loader_options(), share.index, share.count);
    // Virtual shards are cut by shard, and synchronised batch norms cover a whole pass.
    const bool is_cut_otherwise = options_.virtual_shards > 0 || options_.sync_batch_norm;
    passes_of_step_ = is_cut_otherwise ? options_.accumulate : resize_.passes(options_.accumulate);
    return changes;
  }

  void fill_schedule() {
    schedule_ = options_.schedule;
    if (schedule_.total_steps == 0) schedule_.total_steps = total_steps_;
    if (schedule_.every_steps == 0)
      schedule_.every_steps = options_.schedule_every_epochs * batches_per_epoch_;
    check(schedule_);
  }

  // Averages that the checkpoint lacks become the parameters, as at the start of training.
  void begin_averages_anew_but(const std::set<std::string>& found) {
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> parameters = trainable();
    const StateView view = averages();
    for (size_t i = 0; i < view.size(); ++i)
      if (!found.contains(name_in_file(view[i], 0))) view[i].tensor.copy_(parameters[i]);
  }

  // Takes the state to continue from, if there is any. `goes_back` says that it is an earlier
  // state of this run. Throws Error(internal) if there is none and this run has begun to train.
  void resume(bool goes_back = false) {
    phase(Phase::checkpoint);
    if (auto found = saver_->restore(*engine_, averages(), kept_)) {
      begin_averages_anew_but(found->found);
      progress_ = std::move(found->progress);
      goes_back ? guard_.go_back(progress_.guard) : guard_.load(progress_.guard);
      resize_.load(progress_.resize);
      if (const bool changes = resize(); changes && announced_)
        tell([&](monitor::Sink& sink) {
          sink.on_message(fmt::format("from step {}: {}", progress_.step + 1, resize_.describe()));
        });
      loader_->seek(progress_.position);
      // The rest of an epoch may be too small for a larger batch.
      progress_.position = loader_->position();
      stopping_ = progress_.stopping;
      went_on_ = found->goes_on;
      if (found->from_memory) return;
      result_.report.resumed_from_step = progress_.step;
      result_.report.checkpoint = found->path;
      const bool beyond = options_.steps >= 0 ? progress_.step > total_steps_
                                              : progress_.position.epoch > options_.epochs;
      if (beyond && first())
        log_warning(
            "the checkpoint is at step {}, beyond the {} steps asked for: nothing is trained",
            progress_.step, total_steps_);
      return;
    }
    // The replica has given its state up for a checkpoint, and that is gone.
    if (progress_.position != plan::DataPosition{})
      throw Error(
          ErrorCode::internal, "train",
          fmt::format("there is no checkpoint to continue from after step {}", progress_.step),
          "run the job again, and it starts from the beginning");
    resize();
  }

  // Tells where training continues; the log's records of later steps no longer count. A rank 0
  // that took over tells the newest commit again, because its predecessor may have been lost
  // before it did.
  void go_on(bool begins_to_tell) {
    monitor::ContinueRecord from{world_.identity().generation,
                                 progress_.step,
                                 progress_.position,
                                 loader_->plan().options(),
                                 {}};
    progress_.ledger.go_on(from);
    const auto newest = progress_.ledger.newest();
    if (begins_to_tell && !progress_.ledger.empty()) from.ledger = progress_.ledger.to_json();
    tell([&](monitor::Sink& sink) {
      if (newest) sink.on_commit(*newest);
      sink.on_continue(from);
    });
  }

  void record(const Batch& batch, const StepOutcome& outcome) {
    monitor::CommitRecord commit{world_.identity().generation,
                                 progress_.step,
                                 batch.position,
                                 outcome.samples,
                                 {},
                                 outcome.updated};
    const int shares = engine_->data_share().count;
    for (int share = 0; share < shares; ++share) {
      const auto [from, to] = loader_->plan().share_of(outcome.samples, share, shares);
      commit.shares.push_back(to - from);
    }
    progress_.ledger.commit(commit);
    tell([&](monitor::Sink& sink) { sink.on_commit(commit); });
  }

  // COLLECTIVE. Returns true if rank 0 has a checkpoint. It waits for one that is being written.
  bool has_checkpoint() {
    if (writer_) writer_->wait();
    const bool found = writer_ && checkpoint::has_checkpoints(writer_->folder().path());
    return broadcast_value(*group_, {{"found", found}})["found"];
  }

  // Gives all replicas the newest checkpoint's state, as if nothing had come after it.
  void roll_back(const std::string& reason) {
    // All must know this while their state is whole.
    if (!has_checkpoint())
      throw Error(ErrorCode::internal, "train", reason + "; there is no checkpoint to go back to",
                  "checkpoint.every=\"100 steps\"");
    tell(
        [&](monitor::Sink& sink) { sink.on_message("back to the newest checkpoint: " + reason); });
    const int64_t resumed_from_step = result_.report.resumed_from_step;
    // There is no state until the new one is complete, in case a worker is lost meanwhile.
    has_state_ = bound_ = false;
    // The old engine may have state that the checkpoint lacks.
    make_engine();
    resume(/*goes_back=*/true);
    has_state_ = bound_ = true;
    evaluated_step_ = -1;  // That evaluation belongs to steps that were taken back.
    result_.report.resumed_from_step = resumed_from_step;
    go_on(/*begins_to_tell=*/false);
  }

  // Compares the replicas every check_replicas_every steps. Returns true if they differed and all
  // have returned to the newest checkpoint.
  bool replicas_differed() {
    const int64_t every = options_.guard.check_replicas_every;
    const bool have_one_copy = engine_->shares_parameters() && group_->hosts() == 1;
    if (every == 0 || progress_.step % every != 0 || have_one_copy) return false;
    const std::string difference = differing_replicas(updated_parameters(), *group_);
    if (difference.empty()) return false;
    const std::string what = fmt::format("after step {} {}", progress_.step, difference);
    if (!guard_.may_go_back_as_replicas_differ())
      throw Error(ErrorCode::corrupt, "train", what,
                  "guard.policy=rollback, and a look at the memory of that rank's host");
    roll_back(what);
    return true;
  }

  // Announces the start to the sinks on rank 0. In an elastic job another process may be rank 0
  // later.
  void announce_start() {
    monitor::RunStart start;
    start.name = job_.name;
    start.strategy = options_.strategy;
    start.workers = world_.workers();
    start.world_size = group_->size();
    start.total_steps = total_steps_;
    start.first_step = progress_.step;
    start.steps_per_epoch = loader_->batches_per_epoch();
    for (const auto& [name, tensor] : tensors_.parameters) start.parameters += tensor.numel();
    tell([&](monitor::Sink& sink) { sink.on_start(start); });
    for (const std::string& line :
         first_lines(options_, group_->size(), base_rates_.empty() ? 0 : base_rates_[0]))
      tell([&](monitor::Sink& sink) { sink.on_message(line); });
  }

  void start() {
    call([&](Callback& callback) { callback.on_fit_start(*context_); });
    // A newcomer may not meet the others here: they have started before.
    if (went_on_) return;
    // There is nothing to train, and the user asked for the initial weights.
    if (total_steps_ == 0) save_at_the_end();
    announce_saved();
  }

  void step() {
    const auto started = SteadyClock::now();
    remember_buffers();
    random_.reseed(mix64(options_.seed, static_cast<uint64_t>(progress_.step + 1),
                         static_cast<uint64_t>(group_->rank())));
    step_phase(Phase::data);
    const Batch batch = loader_->next();
    const double rate = set_rate();
    const StepOutcome outcome = engine_->step({batch, progress_.step + 1, passes_of_step_});
    in_step_ = false;
    step_phase(Phase::optimizer);
    const GuardVerdict verdict = guard_.judge(
        {progress_.step + 1, batch.position, outcome.loss, outcome.gradient_norm,
         outcome.nonfinite_ranks, outcome.nonfinite_gradients, options_.loss_scaling.has_value()});
    if (verdict.action == GuardAction::stop) throw verdict.error();
    if (verdict.action == GuardAction::rollback) return roll_back(verdict.reason);

    // A batch without an update is no step, but its data is used.
    progress_.position = batch.next;
    if (outcome.updated) {
      ++progress_.step;
      progress_.loss_history.push_back(outcome.loss);
      if (average_) average_->update();
    } else {
      ++progress_.skipped_steps;
    }
    phase(Phase::callbacks);
    record(batch, outcome);
    exchanged_.operations += outcome.operations;
    exchanged_.bytes_sent += outcome.bytes_sent;
    if (outcome.updated) updated_elements_ = outcome.updated_elements;
    ++exchanges_;
    const double seconds = seconds_since(started);
    result_.train_seconds += seconds;
    result_.train_samples += batch.global_size;
    if (result_.report.seconds_to_first_step == 0)
      result_.report.seconds_to_first_step =
          options_.started_at > 0 ? unix_seconds() - options_.started_at : seconds_since(created_);
    stopping_ = progress_.stopping = outcome.stop;
    regroup_ = outcome.regroup;
    if (std::exchange(is_first_step_, false))
      world_.tell_first_step(progress_.step, facts_of_generation());
    announce(batch, outcome, rate, seconds, verdict.reason);
    if (outcome.updated && replicas_differed()) return;
    after_step(batch, outcome.updated);
  }

  // With another batch size, the number of samples decides how far an epoch's schedule is.
  int64_t schedule_step() const {
    if (options_.steps >= 0 || !resize_.scales()) return progress_.step;
    return progress_.position.epoch * batches_per_epoch_ +
           progress_.position.consumed / options_.batch;
  }

  double set_rate() {
    const double factor =
        rate_factor(schedule_, schedule_step()) * resize_.rate_factor(progress_.step);
    std::vector<double> rates = base_rates_;
    for (double& rate : rates) rate *= factor;
    engine_->set_rates(rates);
    return base_rates_.empty() ? 0 : base_rates_[0] * factor;
  }

  void announce(const Batch& batch, const StepOutcome& outcome, double rate, double seconds,
                const std::string& guarded) {
    if (!outcome.updated) {
      const std::string line =
          guarded.empty() ? fmt::format("gradients overflowed: step skipped, loss scale now {:g}",
                                        engine_->loss_scale())
                          : "batch skipped: " + guarded;
      return tell([&](monitor::Sink& sink) { sink.on_message(line); });
    }
    const monitor::StepRecord record{progress_.step, batch.position.epoch,  outcome.loss,
                                     rate,           outcome.gradient_norm, batch.global_size,
                                     seconds};
    tell([&](monitor::Sink& sink) { sink.on_step(record); });
    call([&](Callback& callback) { callback.on_step(*context_, record); });
  }

  void after_step(const Batch& batch, bool updated) {
    const bool epoch_over = batch.next.epoch != batch.position.epoch;
    const bool last = is_done();
    if (epoch_over) {
      call([&](Callback& callback) { callback.on_epoch_end(*context_, batch.position.epoch); });
      const bool due =
          options_.evaluate_every > 0 && batch.next.epoch % options_.evaluate_every == 0;
      if (due && !last && !stopping_) evaluate_now(batch.position.epoch);
    }
    const CheckpointOptions& every = options_.checkpoint;
    const bool by_step =
        updated && every.every_steps > 0 && progress_.step % every.every_steps == 0;
    const bool by_epoch =
        epoch_over && every.every_epochs > 0 && batch.next.epoch % every.every_epochs == 0;
    if (last || stopping_)
      save_at_the_end();
    else if (by_step || by_epoch)
      save();
    announce_saved();
  }

  void evaluate_now(int64_t epoch) {
    if (!test_) return;
    phase(Phase::evaluate);
    engine_->prepare_to_read();
    const ParameterAverage::InUse averages(average_ ? &*average_ : nullptr);
    const Autocast mixed(options_.autocast);
    evaluated_step_ = progress_.step;
    result_.report.eval =
        evaluate(*engine_, model_, job_, *test_, evaluation_batch(), options_.dtype, *group_);
    const monitor::EvalRecord record{progress_.step, epoch, result_.report.eval->loss,
                                     result_.report.eval->accuracy};
    tell([&](monitor::Sink& sink) { sink.on_eval(record); });
    call([&](Callback& callback) { callback.on_evaluate(*context_, record); });
  }
  int64_t last_epoch() const {
    return std::max<int64_t>(
        0, progress_.position.epoch - (progress_.position.consumed == 0 ? 1 : 0));
  }
  int64_t evaluation_batch() const {
    return std::max<int64_t>(1, std::min<int64_t>(options_.batch, 1024));
  }

  void save() {
    if (options_.checkpoint.dir.empty()) return;
    // A callback may have written parameters, which the next step would refuse.
    engine_->check_parameters();
    phase(Phase::checkpoint);
    const auto mark = saver_->writes() ? world_.mark_save(progress_.step) : nullptr;
    strike(Phase::checkpoint, progress_.step);
    progress_.guard = guard_.state();
    engine_->prepare_to_read();
    Json evaluation;
    if (const auto& eval = result_.report.eval; eval && evaluated_step_ == progress_.step)
      evaluation = {{"loss", eval->loss}, {"accuracy", eval->accuracy}};
    saver_->save(whole_state(), progress_, evaluation);
  }

  // Saves at the end. Retention of the best checkpoints needs their evaluations, so the last one
  // is evaluated first.
  void save_at_the_end() {
    if (options_.checkpoint.keep_best > 0 && is_done() && !stopping_) evaluate_now(last_epoch());
    save();
  }

  // The next generation cannot take slices from memory.
  void save_slices() {
    if (options_.checkpoint.dir.empty() || !saver_->has_slices()) return;
    save();
    saver_->wait_for_all(world_.options().timeout / 4);
  }

  // Announces checkpoints that have become durable. At the end of a run, or after a request to
  // stop, it waits for all of them.
  void announce_saved() {
    const bool is_end = is_done() || stopping_;
    if (is_end && !options_.checkpoint.dir.empty())
      // Shorter than the time that the group waits for a rank.
      saver_->wait_for_all(world_.options().timeout / 4);
    for (const std::string& path : saver_->saved(is_end)) {
      result_.report.checkpoint = path;
      tell([&](monitor::Sink& sink) { sink.on_message("checkpoint saved: " + path); });
      call([&](Callback& callback) { callback.on_checkpoint(*context_, path); });
    }
  }

  // A run comes here again after a regrouping, if a worker was lost before all had finished.
  void finish() {
    Report& report = result_.report;
    report.train_loss = 0;
    report.parameters = 0;
    engine_->prepare_to_read();
    // After a request to stop the user is waiting, and the checkpoint holds everything that an
    // evaluation needs.
    if (!stopping_ && evaluated_step_ != progress_.step) evaluate_now(last_epoch());
    if (!std::exchange(ended_, true))
      call([&](Callback& callback) { callback.on_fit_end(*context_); });
    phase(Phase::idle);
    for (const auto& [name, tensor] : tensors_.parameters) report.parameters += tensor.numel();
    report.steps = progress_.step;
    report.epochs = progress_.position.epoch;
    report.world_size = group_->size();
    report.strategy = options_.strategy;
    report.workers = world_.workers();
    report.stopped = stopping_ && !is_done();
    report.skipped_steps = progress_.skipped_steps;
    report.samples = progress_.ledger.samples();
    report.precision = precision_of(options_);
    report.learning_rate_scale = rate_scale(options_.rate_scaling, options_.batch);
    report.compression = options_.compression.name;
    report.local_steps = options_.local.steps;
    report.loss_scale = engine_->loss_scale();
    report.plan_digest = plan().digest();
    if (exchanges_ > 0) {
      report.exchange_operations_per_step =
          static_cast<double>(exchanged_.operations) / exchanges_;
      report.exchange_bytes_per_step = static_cast<double>(exchanged_.bytes_sent) / exchanges_;
    }
    report.updated_elements = updated_elements_of_all();
    report.parameters_sha256 = sha256_of(tensors_.parameters);
    const auto tail = std::min<size_t>(progress_.loss_history.size(),
                                       std::max<int64_t>(1, loader_->batches_per_epoch()));
    for (size_t i = progress_.loss_history.size() - tail; i < progress_.loss_history.size(); ++i)
      report.train_loss += progress_.loss_history[i] / static_cast<double>(tail);
    report.loss_history = progress_.loss_history;
    report.generations = generations();
    if (first()) report.times = world_.times();
    add_process_totals(report);
    result_.rank = group_->rank();
    strike(Phase::idle, progress_.step);
  }

  Json facts_of_generation() const {
    return {{"batch", resize_.batch()},
            {"micro_batches", passes_of_step_},
            {"learning_rate_factor", resize_.rate_target()}};
  }

  // Returns the generations that the coordinator noted. A job that is not elastic has one.
  Json generations() {
    if (world_.is_elastic()) return world_.generations();
    Json only = {{"generation", world_.identity().generation},
                 {"world_size", group_->size()},
                 {"first_step", result_.report.resumed_from_step + 1},
                 {"cause", "start"},
                 {"lost_ranks", Json::array()},
                 {"phase", ""},
                 {"seconds_to_first_step", result_.report.seconds_to_first_step}};
    only.update(facts_of_generation());
    return Json::array({only});
  }

  // The plan of the engine and of the data.
  plan::EnginePlan plan() const {
    plan::EnginePlan plan = engine_->plan();
    plan.data = loader_->plan().options();
    return plan;
  }

  std::vector<int64_t> updated_elements_of_all() {
    const at::Tensor own = at::full({1}, updated_elements_, at::kLong),
                     all = at::zeros({group_->size()}, at::kLong);
    group_->all_gather(own, all);
    const auto* const elements = all.const_data_ptr<int64_t>();
    return {elements, elements + all.numel()};
  }

  // Adds sums over processes; one replica of each process reports for it.
  void add_process_totals(Report& report) {
    at::Tensor sums = at::zeros({2}, at::kDouble);
    if (leads_worker_) {
      sums[0] = monitor::process_cpu_seconds();
      sums[1] = static_cast<double>(pss_.peak());
    }
    group_->all_reduce(sums);
    report.cpu_seconds = sums[0].item<double>();
    report.peak_pss_bytes = static_cast<int64_t>(sums[1].item<double>());
  }

  template <typename Action>
  void tell(Action action) {
    if (!first()) return;
    for (const auto& sink : options_.sinks) action(*sink);
  }
  template <typename Action>
  void call(Action action) {
    for (const auto& callback : options_.callbacks) action(*callback);
  }

  World& world_;
  const TrainerOptions& options_;
  const Job& job_;
  std::shared_ptr<const Source> train_, test_;
  monitor::PssSampler& pss_;
  const bool leads_worker_;
  const SteadyClock::time_point created_ = SteadyClock::now();
  Guard guard_{options_.guard};
  Resize resize_{options_.resize, options_.batch};
  std::optional<Injector> injector_;
  // It must come before the writer, which uses it.
  FullDisk disk_;
  std::optional<checkpoint::Writer> writer_;       // Only rank 0 has it.
  std::optional<checkpoint::Writer> part_writer_;  // The other writers have it.
  // It must come before the model, whose weights are drawn from it.
  ReplicaRandom random_;
  const Strategy strategy_;
  Model model_;
  const ModuleState tensors_;  // The model's.
  // Members that live for a generation, or for the whole run if the job is not elastic.
  std::shared_ptr<Group> group_, norm_group_;
  std::unique_ptr<Engine> engine_;
  std::vector<NamedTensor> updated_;  // The engine's updated_tensors(), once they were asked for.
  std::optional<Loader> loader_;
  std::optional<Saver> saver_;
  std::optional<TrainContext> context_;
  bool is_first_step_ = true;
  bool regroup_ = false;  // All have agreed to regroup after this step.
  bool in_step_ = false;
  // The buffers before the step.
  std::vector<at::Tensor> before_step_;
  // Members that are used between two generations.
  std::optional<RunState> kept_;
  std::vector<std::pair<at::Tensor, at::Tensor>> aside_;  // A tensor, and its old value.
  bool bound_ = false;  // The replica is bound to a generation and has its state.
  // True if this replica has the state after progress_.step committed steps.
  bool has_state_ = false;
  // Members that live for the whole run.

  // The run continues from the memory of another generation.
  bool went_on_ = false;
  bool announced_ = false, started_ = false, ended_ = false;
  ScheduleOptions schedule_;
  std::vector<double> base_rates_;
  // Both are counted with the batch size that the run was given.
  int64_t total_steps_ = 0, batches_per_epoch_ = 0;
  int passes_of_step_ = 1;
  Progress progress_;
  std::optional<ParameterAverage> average_;
  Traffic exchanged_;  // In the steps of this process.
  double exchanges_ = 0;
  int64_t updated_elements_ = 0;  // In the last step that counted.
  int64_t evaluated_step_ = -1;   // The step of the report's evaluation.
  bool stopping_ = false;
  ReplicaResult result_;
};

ReplicaRun::ReplicaRun(const ReplicaSetting& setting) {
  at::set_num_threads(setting.options.threads);
  impl_ = std::make_unique<Impl>(setting);
}
ReplicaRun::~ReplicaRun() = default;
ReplicaRun::End ReplicaRun::run(std::shared_ptr<Group> group, std::shared_ptr<Group> norm_group) {
  return impl_->run(std::move(group), std::move(norm_group));
}
void ReplicaRun::unbind() { impl_->unbind(); }
bool ReplicaRun::is_torn() const { return impl_->is_torn(); }
int64_t ReplicaRun::committed() const { return impl_->committed(); }
const ReplicaResult& ReplicaRun::result() const { return impl_->result(); }
std::map<std::string, std::string> ReplicaRun::facts_of_model() const {
  return impl_->facts_of_model();
}

}  // namespace trireme
