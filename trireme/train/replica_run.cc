#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/breakable.h>
#include <trireme/parallel/file_tensors.h>
#include <trireme/train/data_facts.h>
#include <trireme/train/first_lines.h>
#include <trireme/train/replica_check.h>
#include <trireme/train/replica_run_impl.h>
#include <trireme/train/server_tasks.h>
#include <trireme/train/stop_signal.h>

namespace trireme {

ReplicaRun::Impl::Impl(const ReplicaSetting& setting)
    : setting_(setting),
      world_(setting.world),
      options_(setting.options),
      strategy_(find_strategy(setting.options.strategy)),
      report_(setting),
      model_(setting.job, setting.options, strategy_.features.divides, setting.device),
      listeners_(setting.options, report_, [&world = setting.world](monitor::Told told) {
        world.tell_event(std::move(told));
      }) {}

ReplicaRun::End ReplicaRun::Impl::run(ReplicaGroups groups) {
  const bool goes_on = bind(std::move(groups));
  const bool begins_to_tell = took_over_ = listeners_.begin_to_tell();
  if (begins_to_tell) announce_start();
  go_on(begins_to_tell);
  // A newcomer may not meet the others after its callbacks: they have started before.
  if (listeners_.fit_starts() && !goes_on) {
    // There is nothing to train, and the user asked for the initial weights.
    if (course_->length().total_steps() == 0) save_at_the_end();
    announce_saved();
  }
  // The last generation may have been interrupted while it ended.
  if (goes_on && is_over()) {
    save_at_the_end();
    announce_saved();
  }
  if (keeps_copies() && !is_over()) begin_copies();
  while (!is_over() && standing_.now() != Standing::regrouping)
    engine().own_pace() ? round() : pass();
  finish_copies();
  if (standing_.now() == Standing::regrouping) {
    save_slices();
    return End::regroup;
  }
  finish();
  return End::finished;
}

// Releases everything that lasts only one generation, also of one that ended before bind().
void ReplicaRun::Impl::unbind() {
  last_generation_ = world_.identity().generation;
  evaluator_.end();
  if (before_round_) take_back_round();
  copies_.leave_generation();
  if (must_end()) {
    standing_.enter(Standing::torn);  // The caller does not continue with this object.
  } else if (is_torn()) {
    standing_.enter(Standing::going_back);
    standing_.leave();
  } else if (standing_.is_bound()) {
    if (standing_.now() == Standing::in_step && world_.is_elastic()) model_.restore_buffers();
    kept_ = keep();
    standing_.leave();
  } else {
    model_.put_back();
    standing_.leave();
  }
  checkpoints_.unbind();
  if (generation_ && generation_->has_loader()) tuned_ = generation_->loader().tuning().setting;
  generation_.reset();
}

// Makes a generation's engine, loader and saver. Then every replica gets the state of rank 0, from
// its memory or from the newest checkpoint. Returns true if the run goes on from an earlier
// generation.
bool ReplicaRun::Impl::bind(ReplicaGroups groups) {
  standing_.enter(standing_.has_state() ? Standing::rejoining : Standing::joining);
  enter_generation(groups.mesh);
  generation_.emplace(std::move(groups));
  const bool is_behind = progress_.step < world_.step_of_generation();
  if (standing_.has_state() && is_behind && !(kept_ && kept_->in_slices)) model_.put_aside();
  if (this->group().rank() == 0) evaluator_.begin();
  make_engine();
  // If replicas differ, so does momentum, and parts of several ranks would not fit together.
  const bool are_equal = options_.local.steps <= 1 && strategy_.features.equal_replicas;
  checkpoints_.bind(this->group(), facts_for_checkpoints(), /*in_parts=*/are_equal);
  if (!injector_ && !options_.inject.faults.empty())
    injector_.emplace(options_.inject.faults, options_.inject.marks, fault_actions());
  listeners_.bind(this->group().rank(), this->group().size(), *model_.model().module);
  if (!course_) course_.emplace(options_, samples_of_epoch(), engine().rates());
  const bool goes_on = resume();
  kept_.reset();
  model_.forget_what_is_aside();
  standing_.enter(Standing::between_steps);
  return goes_on;
}

// Forgets a part of the state that the others went on without, while this process was a spare.
void ReplicaRun::Impl::enter_generation(const MeshRank& mesh) {
  const int generation = world_.identity().generation;
  if (generation != last_generation_ + 1) {
    copies_.clear();
    if (kept_ && kept_->in_slices) kept_.reset();
  }
  last_generation_ = generation;
  // The place in a replica of the model: on the axes after that of the replicas.
  std::vector<int> place = mesh.coordinates;
  if (!place.empty()) place.erase(place.begin());
  if (place_ && *place_ != place) has_moved_ = true;
  place_ = std::move(place);
}

// The places of an epoch, which a mixture has other ones of than its source has samples.
int64_t ReplicaRun::Impl::samples_of_epoch() const {
  return options_.shuffle.samples_of_epoch(setting_.train->size());
}

// The facts that a checkpoint must fit. The order of the samples follows the options: a programme
// may have changed them after it read a configuration, or may have none.
RunFacts ReplicaRun::Impl::facts_for_checkpoints() const {
  const int64_t samples = samples_of_epoch();
  Json config = options_.config;
  put_order(config, options_.shuffle, samples);
  return {samples,
          options_.seed,
          options_.batch,
          std::move(config),
          model_.tensors().aliases,
          checkpoints_.best_by()};
}

bool ReplicaRun::Impl::user_wants_stop() const {
  return listeners_.want_stop() || StopSignal::requested();
}

// COLLECTIVE.
void ReplicaRun::Impl::make_engine() {
  EngineSetting setting =
      engine_setting_of(options_, setting_.job, model_, guard_, world_.is_elastic());
  setting.sample = [this](const DataShare& share) {
    return first_pass_of(setting_.train, loader_options_of(options_, options_.batch), share,
                         options_.accumulate);
  };
  setting.measured = measured_;
  if (strategy_.features.servers) setting.servers = access_to_servers(world_, options_.ps);
  setting.enter = [this](Phase phase) { step_phase(phase); };
  setting.wishes = [this] {
    return Wishes{user_wants_stop() || evaluator_.wants_stop(), world_.regroup_wanted()};
  };
  generation_->make_engine(strategy_, model_, std::move(setting));
  if (setting_.train->leaves_out()) refuse_left_out(engine());
  if (options_.ema_decay > 0) model_.begin_averages(options_.ema_decay, engine().state().tensors);
}

FaultActions ReplicaRun::Impl::fault_actions() {
  FaultActions actions = process_actions();
  actions.corrupt = [this](int64_t step) {
    flip_a_bit(generation_->updated_parameters(), static_cast<uint64_t>(step));
  };
  if (dynamic_cast<comm::Breakable*>(&group()))
    actions.drop_link = [this](int peer) {
      dynamic_cast<comm::Breakable&>(group()).drop_link(peer);
    };
  actions.tell = [this](const Fault& fault, int64_t step) {
    listeners_.tell(monitor::FaultRecord{step, fault.text()});
  };
  if (checkpoints_.wanted()) actions.fill_disk = [this] { checkpoints_.fill_disk(); };
  return actions;
}

// The state as a rank has it now. The tensors are those of engine and model.
RunState ReplicaRun::Impl::present_state() {
  RunState now;
  now.progress = progress_;
  now.progress.guard = guard_.state();
  const EngineState state = whole_state();
  now.counters = state.counters;
  now.rank = group().rank();
  now.part = engine().state_part();
  // An engine with one part of all may still lend its model's memory to the next one, which may
  // end before it has given the state back.
  now.in_slices = checkpoints_.has_slices() || now.part.count > 0;
  for (const StateEntry& entry : state.tensors)
    now.in_slices = now.in_slices || !entry.slice.is_whole();
  if (now.part.count == 0) now.part = {now.rank, group().size()};
  for (const StateEntry& entry : state.tensors) {
    if (is_of_one_rank(entry.kind))
      now.own.push_back(entry);
    else if (now.in_slices)
      now.held.push_back(entry);
    else if (!is_of_model(entry.kind))
      now.tensors.by_name.emplace(name_in_file(entry, 0), entry.tensor);
  }
  return now;
}

RunState ReplicaRun::Impl::keep() {
  RunState kept = present_state();
  for (StateEntry& entry : kept.held) entry = held(entry);
  return kept;
}

// The next engine works on the same model and averages, and this rank may get another part of
// them.
StateEntry ReplicaRun::Impl::held(StateEntry entry) {
  const bool stays = is_of_model(entry.kind) || entry.kind == StateKind::average;
  if (stays && !entry.is_foreign) entry.tensor = entry.tensor.detach().clone();
  return entry;
}

// The engine's state, and the tensors of the run beside it.
EngineState ReplicaRun::Impl::whole_state() {
  EngineState state = engine().state();
  const StateView& of_run = model_.averages();
  state.tensors.insert(state.tensors.end(), of_run.begin(), of_run.end());
  return state;
}

// Sets the generation's number of workers. Returns true if the batch or the learning rate changes.
bool ReplicaRun::Impl::resize() {
  const bool changes = resize_.set_workers(group().size(), progress_.step);
  progress_.resize = resize_.state();
  LoaderOptions loader = loader_options_of(options_, resize_.batch());
  loader.device = setting_.device;
  if (generation_->has_loader()) tuned_ = generation_->loader().tuning().setting;
  loader.start = tuned_;
  loader.loaders_of_host = std::max(1, world_.identity().local_workers) * options_.replicas;
  generation_->load_from(setting_.train, loader);
  if (!told_tuning_) told_tuning_ = generation_->loader().tuning().setting;
  // Virtual shards are cut by shard, and synchronised batch norms cover a whole pass.
  const bool is_cut_otherwise = options_.virtual_shards > 0 || options_.sync_batch_norm;
  generation_->passes =
      is_cut_otherwise ? options_.accumulate : resize_.passes(options_.accumulate);
  return changes;
}

// Takes the state to continue from, if there is any. `goes_back` says that it is an earlier state
// of this run. Returns true if the run goes on from an earlier generation. Throws Error(internal)
// if there is no state and this run has begun to train, or has another part of the model than the
// one for which it drew initial values.
bool ReplicaRun::Impl::resume(bool goes_back) {
  phase(Phase::checkpoint);
  std::optional<Saver::Restored> found;
  {
    // State that is larger than memory is read into files.
    const TensorsInFiles in_files(options_.memory.folder_of_state());
    found = checkpoints_.saver().restore(engine(), model_.averages(), kept_, copies_.parts());
  }
  if (!found || !found->from_memory || !keeps_copies()) copies_.clear();
  if (!found) {
    // The replica has given its state up for a checkpoint, and that is gone.
    if (progress_.position != plan::DataPosition{} ||
        (has_moved_ && options_.division.mesh.tensor > 1))
      throw Error(
          ErrorCode::internal, "train",
          fmt::format("there is no checkpoint to continue from after step {}", progress_.step),
          "run the job again, and it starts from the beginning");
    if (!setting_.job.has_no_start.empty())
      throw Error(ErrorCode::not_found, "train",
                  setting_.job.has_no_start + "; no worker has a state from which to go on",
                  "the file, or a checkpoint.dir with a checkpoint");
    resize();
    return false;
  }
  has_moved_ = false;
  model_.begin_averages_anew_but(found->found);
  progress_ = std::move(found->progress);
  goes_back ? guard_.go_back(progress_.guard) : guard_.load(progress_.guard);
  resize_.load(progress_.resize);
  early_stop_.load(progress_.early_stop);
  if (early_stop_.wants_stop() && !is_done()) progress_.stopping = true;
  if (const bool changes = resize(); changes && listeners_.have_begun())
    listeners_.tell(
        monitor::Message{fmt::format("from step {}: {}", progress_.step + 1, resize_.describe())});
  Loader& loader = generation_->loader();
  loader.seek(progress_.position);
  // The rest of an epoch may be too small for a larger batch.
  progress_.position = loader.position();
  if (found->from_copies) from_checkpoint_ = FromCheckpoint{"resume", ""};
  if (found->from_memory) return found->goes_on;
  announced_ = {};  // The batches of the round are computed again.
  of_round_.clear();
  from_checkpoint_ = FromCheckpoint{goes_back ? "rollback" : "resume", found->path};
  if (course_->length().is_exceeded(progress_) && generation_->is_first())
    log_warning("the checkpoint is at step {}, beyond the {} steps asked for: nothing is trained",
                progress_.step, course_->length().total_steps());
  return found->goes_on;
}

// Tells where training continues; the log's records of later steps no longer count. A rank 0 that
// took over tells the newest commit again, because its predecessor may have been lost before it
// did.
void ReplicaRun::Impl::go_on(bool begins_to_tell) {
  monitor::ContinueRecord from{world_.identity().generation, progress_.step, progress_.position,
                               generation_->loader().plan().options()};
  progress_.ledger.go_on(from);
  const auto newest = progress_.ledger.newest();
  if (begins_to_tell && !progress_.ledger.empty()) from.ledger = progress_.ledger.to_json();
  if (begins_to_tell)
    for (const monitor::Event& record : of_round_) listeners_.tell_again(record);
  if (newest) listeners_.tell_again(*newest);
  if (const auto read = std::exchange(from_checkpoint_, {})) {
    from.cause = read->cause;
    from.checkpoint = read->path;
  }
  listeners_.tell(from);
}

// Gives all replicas the newest checkpoint's state, as if nothing had come after it.
void ReplicaRun::Impl::roll_back(const std::string& reason) {
  // All must know this while their state is whole.
  if (!checkpoints_.exist())
    throw Error(ErrorCode::internal, "train", reason + "; there is no checkpoint to go back to",
                "checkpoint.every=\"100 steps\"");
  finish_copies();
  copies_
      .clear();  // The guard takes back what they belong to, even if a worker is lost meanwhile.
  listeners_.tell(monitor::GuardRecord{progress_.step, "rollback", reason});
  // There is no state until the new one is complete, in case a worker is lost meanwhile.
  standing_.enter(Standing::going_back);
  // The old engine may have state that the checkpoint lacks.
  make_engine();
  resume(/*goes_back=*/true);
  standing_.enter(Standing::between_steps);
  go_on(/*begins_to_tell=*/false);
}

// Announces the start to the sinks.
void ReplicaRun::Impl::announce_start() {
  monitor::RunStart start;
  start.name = setting_.job.name;
  start.strategy = options_.strategy;
  start.workers = world_.workers();
  start.world_size = group().size();
  start.total_steps = course_->length().total_steps();
  start.first_step = progress_.step;
  start.steps_per_epoch = generation_->loader().batches_per_epoch();
  start.parameters = model_.parameters();
  listeners_.tell(start);
  for (const std::string& line : first_lines(options_, group().size(), course_->base_rate()))
    listeners_.tell(monitor::Message{line});
}

void ReplicaRun::Impl::finish() {
  engine().prepare_to_read();
  // After a request to stop the user is waiting, and the checkpoint holds everything that an
  // evaluation needs.
  if (!progress_.stopping && !report_.evaluation_of(progress_.step))
    evaluate_now(progress_.last_epoch());
  listeners_.fit_ends();
  phase(Phase::idle);
  report_.complete(progress_, course_->length(), *generation_, model_, facts_of_generation());
  evaluator_.ask();
  report_.add_evaluator(group(), evaluator_, user_wants_stop(), early_stop_.wants_stop());
  if (result().report.stop_reason == kStoppedByEvaluator)
    listeners_.tell(monitor::Message{
        fmt::format("the evaluator stopped the run early, at step {}", progress_.step)});
  if (result().report.stop_reason == kStoppedEarly)
    listeners_.tell(monitor::Message{
        fmt::format("stopped early at step {}: {}", progress_.step, early_stop_.describe())});
  strike(Phase::idle, progress_.step);
  standing_.enter(Standing::finished);
}

Json ReplicaRun::Impl::facts_of_generation() const {
  return {{"batch", resize_.batch()},
          {"micro_batches", generation_->passes},
          {"learning_rate_factor", resize_.rate_target()}};
}

ReplicaRun::ReplicaRun(const ReplicaSetting& setting) {
  at::set_num_threads(setting.options.threads);
  impl_ = std::make_unique<Impl>(setting);
}
ReplicaRun::~ReplicaRun() = default;
ReplicaRun::End ReplicaRun::run(ReplicaGroups groups) { return impl_->run(std::move(groups)); }
void ReplicaRun::unbind() { impl_->unbind(); }
bool ReplicaRun::is_torn() const { return impl_->must_end(); }
int64_t ReplicaRun::committed() const { return impl_->committed(); }
const ReplicaResult& ReplicaRun::result() const { return impl_->result(); }
std::map<std::string, std::string> ReplicaRun::facts_of_model() const {
  return impl_->facts_of_model();
}

}  // namespace trireme
