#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/load.h>
#include <trireme/checkpoint/open_checkpoint.h>
#include <trireme/checkpoint/step_name.h>
#include <trireme/comm/dtype.h>
#include <trireme/membership/protocol.h>
#include <trireme/train/data_facts.h>
#include <trireme/train/saver.h>
#include <trireme/train/saver_places.h>
#include <trireme/train/state_head.h>
#include <algorithm>
#include <exception>
#include <set>
#include <utility>

namespace trireme {
namespace {

// The tensors, without their values, that travel to every rank.
Json describe(const SavedTensors& saved) {
  Json tensors = Json::array();
  for (const auto& [name, tensor] : saved.by_name)
    tensors.push_back({{"name", name},
                       {"shape", tensor.sizes().vec()},
                       {"dtype", plan::to_string(to_stored(tensor.scalar_type()))}});
  return tensors;
}

std::vector<plan::TensorSpec> specs_in(const Json& tensors) {
  std::vector<plan::TensorSpec> specs;
  for (const Json& tensor : tensors)
    specs.push_back({tensor["name"], tensor["shape"].get<std::vector<int64_t>>(),
                     plan::dtype_from_string(tensor["dtype"].get<std::string>()), true});
  return specs;
}

// Everything of a checkpoint but its tensors.
RunState state_of(const checkpoint::Saved& saved) {
  const checkpoint::Manifest& manifest = saved.manifest;
  RunState state;
  state.tensors.ranks = manifest.extra.value("world_size", 0);
  state.counters = manifest.extra.value("counters", Json::object());
  state.counters["optimizer"] = {
      {"kind", manifest.optimizer.value("kind", "")},
      {"counters", manifest.optimizer.value("counters", Json::object())}};
  state.progress = {manifest.step,
                    manifest.extra.value("skipped_steps", int64_t{0}),
                    manifest.position,
                    false,
                    manifest.loss_history,
                    {},
                    manifest.extra.value("guard", Json()),
                    manifest.extra.value("resize", Json()),
                    manifest.extra.value("early_stop", Json())};
  if (manifest.extra.contains("ledger"))
    state.progress.ledger = Ledger::from_json(manifest.extra["ledger"], saved.path.string());
  state.path = saved.path.string();
  return state;
}

Json refusal_of(const Error& error) {
  auto [what, remedy] = parts_of(error);
  // If all checkpoints are damaged, each has a line.
  const std::string text = error.what();
  if (const size_t more = text.find('\n'); more != std::string::npos) what += text.substr(more);
  return membership::refusal({error.code(), what, remedy});
}

void throw_if_refused(const Json& head) {
  if (const auto failure = membership::failure_in(head))
    throw Error(failure->code, "train", failure->what, failure->remedy);
}

// The newest checkpoint has slices, and all ranks must read it. No std::exception, which would
// look like a checkpoint that does not fit.
struct FoundSlices {};

bool any_rank(bool mine, Group& group) {
  const at::Tensor ranks = at::full({1}, mine ? 1 : 0, at::kLong);
  group.all_reduce(ranks);
  return ranks.item<int64_t>() > 0;
}

Error nothing_to_go_back_to() {
  return Error(ErrorCode::internal, "train",
               "a worker was lost, its slices of the state are gone with it, and there is no "
               "checkpoint to go back to",
               "checkpoint.every, or run the job again from the beginning");
}

}  // namespace

void Saver::check_facts(const checkpoint::Manifest& manifest) const {
  require_same_data(manifest.config, facts_.config);
  const auto was = [&](const char* key, int64_t otherwise) {
    return manifest.extra.value(key, otherwise);
  };
  if (const int64_t samples = was("samples", facts_.samples); samples != facts_.samples)
    throw Error(ErrorCode::invalid_argument, "train",
                fmt::format("the checkpoint was trained on {} samples, the data has {}", samples,
                            facts_.samples),
                "the same data, or --fresh to start anew");
  const auto seed = manifest.extra.value("seed", facts_.seed);
  if (seed != facts_.seed)
    log_warning(
        "train.seed is {} now and was {} in the checkpoint: the order of samples changes from "
        "here",
        facts_.seed, seed);
  for (const std::string& change : changes_of_input(manifest.config, facts_.config))
    log_warning("{}: samples are made in another way from here", change);
  const int64_t batch = was("batch", facts_.batch);
  if (batch != facts_.batch)
    log_warning("data.batch is {} now and was {} in the checkpoint", facts_.batch, batch);
}

// The files of other processes are read by them, when it is too late for another checkpoint.
void Saver::check_elsewhere(const checkpoint::Saved& saved) const {
  const std::string text = saved.manifest.extra.value("elsewhere", "");
  if (text != elsewhere_) {
    const auto what = [](const std::string& state) {
      return state.empty() ? std::string("no state on parameter servers")
                           : "on parameter servers: " + state;
    };
    throw Error(ErrorCode::invalid_argument, "train",
                fmt::format("{} has {}, and this run has {}", saved.path.string(), what(text),
                            what(elsewhere_)),
                "the same ps.tables and tables.*, or --fresh to start anew");
  }
  for (const auto& [name, writer] : saved.manifest.writers)
    if (writer < 0) {
      const auto path = saved.path / name;
      checkpoint::require_digest(
          path, checkpoint::digest_of_file(path, saved.manifest.files.at(name), usable_cores()),
          saved.manifest.files.at(name));
    }
}

// Reads the newest checkpoint. Parameters and buffers go directly into the model. Throws
// FoundSlices.
std::optional<RunState> Saver::read(const StateView& model) {
  // A run may return to the checkpoint that it has just saved.
  writer_->wait();
  Places places(model);
  const auto saved =
      checkpoint::load_newest(writer_->folder().path(), [&](const checkpoint::Saved& candidate) {
        if (!candidate.manifest.slices.empty()) throw FoundSlices();
        check_facts(candidate.manifest);
        check_elsewhere(candidate);
        return places.of(candidate);
      });
  if (!saved) return std::nullopt;
  places.settle();
  RunState state = state_of(*saved);
  for (const auto& [name, tensor] : places.others) state.tensors.by_name.emplace(name, tensor);
  log_info("resumed from {} at step {}", state.path, state.progress.step);
  return state;
}

std::optional<Saver::Restored> Saver::restore(Engine& engine, const StateView& of_run,
                                              std::optional<RunState> kept,
                                              const std::vector<const RunState*>& copies) {
  const EngineState now = engine.state();
  elsewhere_ = now.elsewhere.text;
  const bool in_slices = learn_slices(joined(now.tensors, of_run));
  // A whole state that some rank kept is newer than all copies.
  const bool is_whole = any_rank(kept && !kept->in_slices, group_);
  const bool has_parts =
      any_rank((kept && kept->in_slices) || (!is_whole && !copies.empty()), group_);
  if (has_parts)
    if (auto restored = restore_parts(engine, of_run, kept ? &*kept : nullptr, copies))
      return restored;
  // A part of the state was lost with the workers that had it.
  const bool gives_up = has_parts;
  if (gives_up) kept.reset();
  const StateView own = kept ? kept->own : StateView();
  const bool from_memory = kept.has_value();
  std::optional<RunState> state;
  Json head = Json::object();
  std::exception_ptr refused;  // Only rank 0 reads the checkpoint, but all ranks refuse it.
  if (group_.rank() == 0) {
    try {
      if (from_memory)
        state = std::move(kept);
      else if (writer_ && in_slices)
        head["in_slices"] = true;
      else if (writer_)
        state = read(engine.state().tensors);
      if (gives_up && !state && !head.contains("in_slices")) throw nothing_to_go_back_to();
    } catch (const FoundSlices&) {
      head["in_slices"] = true;
    } catch (const std::exception& error) {
      head = refusal_of(as_error(error));
      refused = std::current_exception();
    }
  }
  if (state) {
    head = head_of(*state, from_memory);
    head["tensors"] = describe(state->tensors);
  }
  head = broadcast_value(group_, head);
  if (refused) std::rethrow_exception(refused);
  throw_if_refused(head);
  if (head.contains("in_slices")) return restore_slices(engine, of_run, gives_up);
  if (!head.contains("found")) return std::nullopt;
  if (!state) state.emplace();
  Restored restored;
  restored.from_memory = head["from_memory"];
  engine.begin_load({head["counters"], specs_in(head["tensors"]), !restored.from_memory,
                     restored.from_memory ? "" : state->path});
  const StateView all = joined(engine.state().tensors, of_run);
  restored.found = fill(all, state->tensors, /*only_common=*/restored.from_memory, group_);
  // Rank 0 has only its own tensors of single ranks, so each rank keeps what it has.
  if (restored.from_memory) take_own(all, own);
  engine.end_load();
  restored.progress = progress_in(head);
  restored.path = state->path;
  restored.goes_on = restored.from_memory || gives_up;
  return restored;
}

// Rank 0 goes through the checkpoints from the newest on, and each rank reads its slices of each,
// until none of them finds damage.
std::optional<Saver::Restored> Saver::restore_slices(Engine& engine, const StateView& of_run,
                                                     bool must_find) {
  Restored restored;
  const auto attempt = [&](const Json& head, checkpoint::SliceReader* opened) {
    return read_slices(engine, of_run, head, opened, restored);
  };
  Json end = {{"end", true}};
  if (group_.rank() == 0) {
    std::exception_ptr refused;
    try {
      writer_->wait();
      const auto open = [&](const std::filesystem::path& path) {
        checkpoint::SliceReader reader(path);
        check_facts(reader.saved().manifest);
        check_elsewhere(reader.saved());
        Json head = head_of(state_of(reader.saved()), /*from_memory=*/false);
        head["path"] = path.string();
        head["files"] = reader.saved().manifest.files;
        head["ranks"] = reader.saved().manifest.extra.value("world_size", 0);
        head = broadcast_value(group_, head);
        if (const auto error = attempt(head, &reader)) {
          // Damage would explain the error.
          if (error->code() == ErrorCode::invalid_argument) checkpoint::verify(reader.saved());
          throw *error;
        }
        return checkpoint::open_manifest(path);
      };
      const auto saved =
          checkpoint::newest_whole(std::filesystem::absolute(writer_->path()), open);
      if (!saved && must_find) throw nothing_to_go_back_to();
      end["found"] = saved.has_value();
    } catch (const std::exception& error) {
      end = refusal_of(as_error(error));
      end["end"] = true;
      refused = std::current_exception();
    }
    broadcast_value(group_, end);
    if (refused) std::rethrow_exception(refused);
  } else {
    for (;;) {
      const Json head = broadcast_value(group_, Json());
      if (head.contains("end")) {
        end = head;
        break;
      }
      attempt(head, nullptr);  // Rank 0 decides what follows from an error.
    }
    throw_if_refused(end);
  }
  if (!end.value("found", false)) return std::nullopt;
  restored.goes_on = must_find;
  if (group_.rank() > 0)
    restored.path.clear();
  else
    log_info("resumed from {} at step {}", restored.path, restored.progress.step);
  return restored;
}

// Opens the checkpoint that rank 0 reads.
checkpoint::SliceReader& Saver::open_as_rank_0(const Json& head,
                                               std::optional<checkpoint::SliceReader>& own) const {
  try {
    own.emplace(std::filesystem::path(head["path"].get<std::string>()));
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, "train",
                fmt::format("rank {} cannot read the checkpoint that rank 0 reads: {}",
                            group_.rank(), parts_of(error).what),
                "a checkpoint.dir that all ranks share");
  }
  if (Json(own->saved().manifest.files) != head["files"])
    throw Error(ErrorCode::invalid_argument, "train",
                fmt::format("rank {} sees another checkpoint as {} than rank 0", group_.rank(),
                            own->saved().path.string()),
                "a checkpoint.dir that all ranks share");
  return *own;
}

std::optional<Error> Saver::read_slices(Engine& engine, const StateView& of_run, const Json& head,
                                        checkpoint::SliceReader* opened, Restored& restored) {
  std::optional<checkpoint::SliceReader> own;
  const auto read_model = [&] {
    if (opened == nullptr) opened = &open_as_rank_0(head, own);
    read_own_model(engine.state().tensors, *opened);
  };
  if (auto error = attempt_on_all(group_, read_model)) return error;

  std::set<std::string> of_model;
  for (const auto& tensor : checkpoint::catalogue_of(opened->saved(), checkpoint::kModelFile))
    of_model.insert(tensor.spec.name);
  std::vector<plan::TensorSpec> others;
  for (const checkpoint::StoredTensor& tensor : opened->tensors())
    if (!of_model.contains(tensor.spec.name)) others.push_back(tensor.spec);
  const auto begin = [&] { engine.begin_load({head["counters"], others, /*model_is_new=*/true}); };
  if (auto error = attempt_on_all(group_, begin)) return error;

  const StateView all = joined(engine.state().tensors, of_run);
  if (auto error = attempt_on_all(group_, [&] { learn_slices(all); })) return error;
  const auto parts = divided(all);
  const StateView &in_slices = parts.first, &whole_ones = parts.second;
  restored.found.clear();
  SavedTensors saved;
  saved.ranks = head["ranks"];
  const auto read_others = [&] {
    SlicePlaces places;
    for (const StateEntry& entry : in_slices) {
      const std::string name = name_in_file(entry, 0);
      if (opened->find(name) == nullptr) continue;
      places.add(entry, *opened);
      restored.found.insert(name);
    }
    // Rank 0 hands out what the ranks do not have in slices.
    for (const plan::TensorSpec& spec : group_.rank() == 0 ? others : decltype(others)()) {
      if (slices_.tensors.contains(spec.name)) continue;
      const at::Tensor tensor =
          at::empty(spec.shape, at::TensorOptions().dtype(to_torch(spec.dtype)));
      saved.by_name.emplace(spec.name, tensor);
      places.add(whole(spec.name, tensor, StateKind::optimizer), *opened);
    }
    places.read(*opened);
  };
  if (auto error = attempt_on_all(group_, read_others)) return error;
  restored.found.merge(fill(whole_ones, saved, /*only_common=*/false, group_));
  engine.end_load();
  restored.progress = progress_in(head);
  restored.path = head["path"];
  restored.bytes_read = static_cast<int64_t>(opened->bytes_read());
  return {};
}

void Saver::read_own_model(const StateView& state, checkpoint::SliceReader& reader) const {
  SlicePlaces places;
  for (const StateEntry& entry : wanted_of_model(state)) places.add(entry, reader);
  std::set<std::string> known;
  for (const StateEntry& entry : state)
    if (is_of_model(entry.kind)) known.insert(entry.slice.tensor);
  for (const auto& tensor : checkpoint::catalogue_of(reader.saved(), checkpoint::kModelFile))
    if (!known.contains(tensor.spec.name))
      refuse_checkpoint(fmt::format("{} holds '{}', which this model does not have",
                                    reader.saved().path.string(), tensor.spec.name));
  places.read(reader);
}

}  // namespace trireme
