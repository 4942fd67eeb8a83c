#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/load.h>
#include <trireme/comm/dtype.h>
#include <trireme/launch/protocol.h>
#include <trireme/train/data_facts.h>
#include <trireme/train/saver.h>
#include <algorithm>
#include <exception>
#include <random>
#include <set>
#include <utility>

namespace trireme {
namespace {

// Views of tensors, with contiguous copies where needed. The copies live as long as the views.
struct Views {
  std::vector<at::Tensor> kept;
  std::vector<checkpoint::TensorView> views;
  void add(const std::vector<NamedTensor>& tensors) {
    for (const auto& [name, tensor] : tensors) {
      const at::Tensor whole = tensor.detach().contiguous();
      kept.push_back(whole);
      views.push_back({{name, whole.sizes().vec(), to_stored(whole.scalar_type()), true},
                       {static_cast<const std::byte*>(whole.const_data_ptr()), whole.nbytes()}});
    }
  }
};

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

at::Tensor empty_like(const checkpoint::TensorView& view) {
  return at::empty(view.spec.shape, at::TensorOptions().dtype(to_torch(view.spec.dtype)));
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "train", what,
              "the checkpoint.dir of the same model, or --fresh to start anew");
}

const checkpoint::TensorView& stored(const checkpoint::Saved& saved, const std::string& name,
                                     const at::Tensor& tensor) {
  const checkpoint::TensorView* view = saved.model->find(name);
  if (view == nullptr)
    refuse(fmt::format("{} has no tensor '{}' of this model", saved.path.string(), name));
  // A tensor of another type would be converted silently, and would lose what its type promises.
  const plan::DType type = to_stored(tensor.scalar_type());
  const bool same_type = view->spec.dtype == type ||
                         // Early checkpoints store bool as uint8; the bytes are the same.
                         (type == plan::DType::boolean && view->spec.dtype == plan::DType::uint8);
  // Early checkpoints store masks and counters in the type of training.
  const bool was_converted =
      !tensor.is_floating_point() && at::isFloatingType(to_torch(view->spec.dtype));
  if (view->spec.shape != tensor.sizes().vec() || !(same_type || was_converted))
    refuse(fmt::format("{} holds '{}' as {}, this model has {}", saved.path.string(), name,
                       view->spec.describe(),
                       plan::TensorSpec{name, tensor.sizes().vec(), type, true}.describe()));
  return *view;
}

// The places for a checkpoint's tensors: the model's are read directly into the module, the others
// into new tensors.
class Places {
 public:
  explicit Places(const StateView& state) {
    for (const StateEntry& entry : state)
      if (is_of_model(entry.kind)) model_.push_back(entry);
  }

  std::vector<checkpoint::Destination> of(const checkpoint::Saved& saved) {
    others.clear();
    detours_.clear();
    std::vector<checkpoint::Destination> destinations;
    std::set<std::string> known;
    for (const auto& [slice, tensor, kind] : model_) {
      known.insert(slice.tensor);
      const checkpoint::TensorView& view = stored(saved, slice.tensor, tensor);
      const bool direct =
          tensor.is_cpu() && tensor.is_contiguous() &&
          tensor.is_floating_point() == at::isFloatingType(to_torch(view.spec.dtype));
      if (!direct) detours_.emplace_back(tensor, empty_like(view));
      destinations.push_back({&view, bytes_of(direct ? tensor : detours_.back().second)});
    }
    for (const auto& view : saved.model->tensors())
      if (!known.contains(view.spec.name))
        refuse(fmt::format("{} holds '{}', which this model does not have", saved.path.string(),
                           view.spec.name));
    if (saved.optimizer)
      for (const auto& view : saved.optimizer->tensors()) {
        others.push_back({view.spec.name, empty_like(view)});
        destinations.push_back({&view, bytes_of(others.back().tensor)});
      }
    return destinations;
  }

  // Called once all bytes are in place.
  void settle() {
    const at::NoGradGuard no_grad;
    for (const auto& [tensor, read] : detours_) tensor.copy_(read);
    for (const StateEntry& entry : model_)
      entry.tensor.unsafeGetTensorImpl()->bump_version();  // Autograd did not see the write.
  }

  std::vector<NamedTensor> others;

 private:
  StateView model_;
  std::vector<std::pair<at::Tensor, at::Tensor>> detours_;
};

void require_finite(const std::vector<NamedTensor>& parameters, int64_t step) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : parameters)
    if (tensor.is_floating_point() && !tensor.isfinite().all().item<bool>())
      throw Error(
          ErrorCode::internal, "train",
          fmt::format(
              "after step {} the parameter '{}' is NaN or infinite; no checkpoint was written",
              step, name),
          "a smaller optimizer.lr, train.clip_norm, or a look at the data; older checkpoints are "
          "as they were");
}

// The tensors, without their values, that travel to every rank.
Json describe(const SavedTensors& saved) {
  Json tensors = Json::array();
  for (const auto& [name, tensor] : saved.by_name)
    tensors.push_back({{"name", name},
                       {"shape", tensor.sizes().vec()},
                       {"dtype", plan::to_string(to_plan(tensor.scalar_type()))}});
  return tensors;
}

std::vector<plan::TensorSpec> specs_in(const Json& tensors) {
  std::vector<plan::TensorSpec> specs;
  for (const Json& tensor : tensors)
    specs.push_back({tensor["name"], tensor["shape"].get<std::vector<int64_t>>(),
                     plan::dtype_from_string(tensor["dtype"].get<std::string>()), true});
  return specs;
}

// Returns the tensors of a part beside the model. Each tensor that all ranks have goes to the part
// that has the fewest bytes so far. An archive goes to the first part, because its size may differ
// from rank to rank.
std::vector<NamedTensor> dealt_to(const checkpoint::Part& part, const StateView& state) {
  std::vector<NamedTensor> mine;
  std::vector<size_t> bytes(static_cast<size_t>(part.count));
  for (const StateEntry& entry : state)
    if (is_of_model(entry.kind)) bytes[0] += entry.tensor.nbytes();
  for (const StateEntry& entry : state) {
    if (is_of_model(entry.kind) || is_of_one_rank(entry.kind)) continue;
    auto to = bytes.begin();
    if (entry.kind != StateKind::archive) {
      to = std::min_element(bytes.begin(), bytes.end());
      *to += entry.tensor.nbytes();
    }
    if (to - bytes.begin() == part.index) mine.push_back({name_in_file(entry, 0), entry.tensor});
  }
  return mine;
}

// Checkpoints hold whole tensors.
void require_whole(const StateView& state) {
  for (const StateEntry& entry : state) {
    check(entry.slice);
    if (!entry.slice.is_whole())
      throw Error(
          ErrorCode::unsupported, "train",
          fmt::format("a checkpoint cannot hold a part of a tensor: {}", entry.slice.describe()),
          "a strategy whose ranks have whole tensors, or no checkpoint.dir");
    if (entry.tensor.sizes().vec() != entry.slice.sizes)
      throw Error(ErrorCode::internal, "train",
                  fmt::format("the state {} has a tensor of shape [{}]", entry.slice.describe(),
                              fmt::join(entry.tensor.sizes(), ", ")),
                  "an Engine::state() whose tensors have the sizes of their slices");
  }
}

}  // namespace

bool has_host_to_itself(Group& group) {
  return group.host_team() == nullptr || group.hosts() == group.size();
}

std::optional<PartsOfSaves> agree_on_parts(bool of_all_ranks, const std::filesystem::path& folder,
                                           checkpoint::FileSystem& files, Group& group) {
  PartsOfSaves parts{.index = group.rank(),
                     .count = group.size(),
                     .of_all_ranks = of_all_ranks || has_host_to_itself(group)};
  if (!parts.of_all_ranks) {
    const auto leaders = group.between_hosts();
    parts.index = leaders ? leaders->rank() : -1;
    parts.count = group.hosts();
  }
  if (parts.count == 1) return {};
  // If a lost worker ends this early, the probe stays until a process opens the folder again.
  const auto probe = [&] {
    return checkpoint::unfinished_path(parts.folder, 0, {0, 1, parts.name});
  };
  const bool is_first = group.rank() == 0;
  if (is_first) {
    std::random_device random;
    parts.folder = std::filesystem::absolute(folder);
    parts.name = fmt::format("{:08x}{:08x}", random(), random());
    checkpoint::open_unfinished(files, probe());
  }
  const Json told =
      broadcast_value(group, {{"folder", parts.folder.string()}, {"name", parts.name}});
  parts.folder = told["folder"].get<std::string>();
  parts.name = told["name"];
  // The rank that writes each part; the last element counts the ranks that cannot write.
  at::Tensor writers = at::zeros({parts.count + 1}, at::kLong);
  if (parts.index >= 0) {
    writers[parts.index] = group.rank();
    try {
      files.create(probe() / std::to_string(parts.index));
    } catch (const Error&) {
      writers[parts.count] = 1;
    }
  }
  group.all_reduce(writers);
  if (is_first) files.remove_tree(probe());
  const int64_t blind = writers[parts.count].item<int64_t>();
  for (int part = 0; part < parts.count; ++part) parts.ranks.push_back(writers[part].item<int>());
  if (blind == 0) return parts;
  if (is_first)
    log_info("rank 0 writes checkpoints alone: {} of {} writers cannot write to {}", blind,
             parts.count, parts.folder.string());
  return {};
}

Saver::Saver(checkpoint::Writer* writer, std::optional<PartsOfSaves> parts, RunFacts facts,
             Group& group)
    : facts_(std::move(facts)), group_(group), writer_(writer), parts_(std::move(parts)) {}

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
  const int64_t batch = was("batch", facts_.batch);
  if (batch != facts_.batch)
    log_warning("data.batch is {} now and was {} in the checkpoint", facts_.batch, batch);
}

// Reads the newest checkpoint. Parameters and buffers go directly into the model.
std::optional<RunState> Saver::read(const StateView& model) {
  // A run may return to the checkpoint that it has just saved.
  writer_->wait();
  Places places(model);
  const auto saved =
      checkpoint::load_newest(writer_->folder().path(), [&](const checkpoint::Saved& candidate) {
        check_facts(candidate.manifest);
        return places.of(candidate);
      });
  if (!saved) return std::nullopt;
  places.settle();
  const checkpoint::Manifest& manifest = saved->manifest;
  RunState state;
  for (const auto& [name, tensor] : places.others) state.tensors.by_name.emplace(name, tensor);
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
                    manifest.extra.value("resize", Json())};
  if (manifest.extra.contains("ledger"))
    state.progress.ledger = Ledger::from_json(manifest.extra["ledger"], saved->path.string());
  state.path = saved->path.string();
  log_info("resumed from {} at step {}", state.path, state.progress.step);
  return state;
}

std::optional<Saver::Restored> Saver::restore(Engine& engine, const StateView& of_run,
                                              std::optional<RunState> kept) {
  const bool from_memory = kept.has_value();
  std::optional<RunState> state;
  Json head = Json::object();
  std::exception_ptr refused;  // Only rank 0 reads the checkpoint, but all ranks refuse it.
  if (group_.rank() == 0) {
    try {
      state = from_memory ? std::move(kept)
              : writer_   ? read(engine.state().tensors)
                          : std::nullopt;
    } catch (const Error& error) {
      const auto [what, remedy] = parts_of(error);
      head = launch::refusal({error.code(), what, remedy});
      refused = std::current_exception();
    }
  }
  if (state)
    head = {{"found", true},
            {"from_memory", from_memory},
            {"step", state->progress.step},
            {"skipped", state->progress.skipped_steps},
            {"stopping", state->progress.stopping},
            {"losses", state->progress.loss_history},
            {"ledger", state->progress.ledger.to_json()},
            {"guard", state->progress.guard},
            {"resize", state->progress.resize},
            {"counters", state->counters},
            {"tensors", describe(state->tensors)},
            {"epoch", state->progress.position.epoch},
            {"consumed", state->progress.position.consumed}};
  head = broadcast_value(group_, head);
  if (refused) std::rethrow_exception(refused);
  if (const auto failure = launch::failure_in(head))
    throw Error(failure->code, "train", failure->what, failure->remedy);
  if (!head.contains("found")) return std::nullopt;
  if (!state) state.emplace();
  Restored restored;
  restored.from_memory = head["from_memory"];
  engine.begin_load({head["counters"], specs_in(head["tensors"]), !restored.from_memory});
  StateView all = engine.state().tensors;
  all.insert(all.end(), of_run.begin(), of_run.end());
  restored.found = fill(all, state->tensors, /*only_common=*/restored.from_memory, group_);
  engine.end_load();
  restored.progress = {
      head["step"],     head["skipped"], {head["epoch"], head["consumed"]},
      head["stopping"], head["losses"],  Ledger::from_json(head["ledger"], "rank 0"),
      head["guard"],    head["resize"]};
  restored.path = state->path;
  return restored;
}

checkpoint::Manifest Saver::manifest_of(const EngineState& state, const Progress& progress,
                                        const Json& evaluation) const {
  checkpoint::Manifest manifest;
  manifest.step = progress.step;
  manifest.position = progress.position;
  manifest.aliases = facts_.aliases;
  manifest.loss_history = progress.loss_history;
  manifest.config = facts_.config;
  manifest.extra = {{"samples", facts_.samples},
                    {"seed", facts_.seed},
                    {"batch", facts_.batch},
                    {"world_size", group_.size()}};
  manifest.extra["skipped_steps"] = progress.skipped_steps;
  manifest.extra["ledger"] = progress.ledger.to_json();
  manifest.extra["guard"] = progress.guard;
  manifest.extra["resize"] = progress.resize;
  Json counters = state.counters;
  manifest.optimizer = counters.value("optimizer", Json::object());
  counters.erase("optimizer");
  manifest.extra["counters"] = std::move(counters);
  if (!evaluation.is_null()) manifest.extra["evaluation"] = evaluation;
  return manifest;
}

void Saver::save(const EngineState& state, const Progress& progress, const Json& evaluation) {
  require_whole(state.tensors);
  const bool all_write = parts_ && parts_->of_all_ranks;
  const std::vector<NamedTensor> of_ranks =
      all_write ? own_in_file(state.tensors, group_.rank()) : collect_own(state.tensors, group_);
  if (!writer_) return;
  checkpoint::Part part;
  if (parts_)
    part = {parts_->index, parts_->count, fmt::format("{}-{}", parts_->name, ++saves_),
            parts_->ranks};
  checkpoint::Manifest manifest;
  manifest.step = progress.step;
  Views model_views, other_views;
  if (part.index == 0) {
    const std::vector<NamedTensor> parameters = tensors_of(state.tensors, StateKind::parameter);
    require_finite(parameters, progress.step);
    manifest = manifest_of(state, progress, evaluation);
    model_views.add(parameters);
    model_views.add(tensors_of(state.tensors, StateKind::buffer));
  }
  other_views.add(dealt_to(part, state.tensors));
  other_views.add(of_ranks);
  writer_->save(std::move(manifest), model_views.views, other_views.views, std::move(part));
}

void Saver::wait_for_all(Milliseconds at_once) {
  if (group_.size() == 1) return;
  at::Tensor writing = at::zeros({1}, at::kLong);
  do {
    writing[0] = writer_ && !writer_->is_done_within(at_once) ? 1 : 0;
    group_.all_reduce(writing);
  } while (writing.item<int64_t>() > 0);
}

std::vector<std::string> Saver::saved(bool all) {
  std::vector<std::string> paths;
  if (!writer_) return paths;
  if (all) writer_->wait();
  for (const auto& path : writer_->take_saved()) paths.push_back(path.string());
  return paths;
}

}  // namespace trireme
