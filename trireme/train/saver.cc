#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/file_system.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/agreement.h>
#include <trireme/tensor/on_host.h>
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
      const at::Tensor whole = on_host(tensor);
      kept.push_back(whole);
      views.push_back({{name, whole.sizes().vec(), to_stored(whole.scalar_type()), true},
                       {static_cast<const std::byte*>(whole.const_data_ptr()), whole.nbytes()}});
    }
  }
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

// A name that no other run has.
std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
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
    parts.folder = std::filesystem::absolute(folder);
    parts.name = random_name();
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
             Group& group, LetAllWrite let_all_write)
    : facts_(std::move(facts)),
      group_(group),
      writer_(writer),
      parts_(std::move(parts)),
      let_all_write_(std::move(let_all_write)) {}

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
  if (!progress.early_stop.is_null()) manifest.extra["early_stop"] = progress.early_stop;
  Json counters = state.counters;
  manifest.optimizer = counters.value("optimizer", Json::object());
  counters.erase("optimizer");
  manifest.extra["counters"] = std::move(counters);
  if (!state.elsewhere.text.empty()) manifest.extra["elsewhere"] = state.elsewhere.text;
  if (!evaluation.is_null()) manifest.extra["evaluation"] = evaluation;
  if (const auto& [measure, higher_is_better] = facts_.best_by; measure != "loss")
    manifest.extra["best_by"] = {{"measure", measure}, {"higher_is_better", higher_is_better}};
  return manifest;
}

void Saver::save(const EngineState& state, const Progress& progress, const Json& evaluation) {
  if (learn_slices(state.tensors)) return save_slices(state, progress, evaluation);
  const bool all_write = parts_ && parts_->of_all_ranks;
  const std::vector<NamedTensor> of_ranks =
      all_write ? own_in_file(state.tensors, group_.rank()) : collect_own(state.tensors, group_);
  checkpoint::Part part;
  if (writer_ && parts_)
    part = {parts_->index, parts_->count, fmt::format("{}-{}", parts_->name, ++saves_),
            parts_->ranks};
  const std::vector<NamedTensor> others = dealt_to(part, state.tensors);
  if (state.elsewhere.parts > 0) save_elsewhere(state.elsewhere, progress.step, part);
  if (!writer_) return;
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
  other_views.add(others);
  other_views.add(of_ranks);
  writer_->save(std::move(manifest), model_views.views, other_views.views, std::move(part));
}

// No rank goes on before the others have copied their state, which its next step may change.
void Saver::save_elsewhere(const StateElsewhere& elsewhere, int64_t step, checkpoint::Part& part) {
  const bool is_first = group_.rank() == 0 && writer_;
  if (is_first && part.attempt.empty()) {
    if (name_.empty()) name_ = random_name();
    part.attempt = fmt::format("{}-{}", name_, ++saves_);
  }
  if (writer_ && part.ranks.empty()) part.ranks.push_back(0);
  for (int i = 0; i < elsewhere.parts; ++i) part.ranks.push_back(-1 - i);
  part.count += elsewhere.parts;
  part.attempt = found_by_first(group_, [&] {
    if (is_first) {
      const auto folder = std::filesystem::absolute(writer_->path());
      checkpoint::open_unfinished(checkpoint::disk(),
                                  checkpoint::unfinished_path(folder, step, part));
      elsewhere.write(folder, step, part);
    }
    return Json(part.attempt);
  });
}

// Every rank writes its own slices, and of replicas the lowest rank.
void Saver::save_slices(const EngineState& state, const Progress& progress,
                        const Json& evaluation) {
  const int rank = group_.rank();
  // All ranks or none begin to write.
  const auto finite = [&] {
    require_finite(tensors_of(state.tensors, StateKind::parameter), progress.step);
  };
  if (const auto error = attempt_on_all(group_, finite)) throw *error;
  checkpoint::Part part;
  if (group_.size() > 1)
    part = {rank, group_.size(), fmt::format("{}-{}", parts_->name, ++saves_), parts_->ranks};
  Views model_views, other_views;
  for (const auto& [index, name] : slices_.written) {
    const StateEntry& entry = state.tensors[index];
    Views& views = is_of_model(entry.kind) ? model_views : other_views;
    views.add({{name, entry.tensor.detach().reshape(entry.slice.sizes)}});
  }
  other_views.add(own_in_file(state.tensors, rank));
  checkpoint::Manifest manifest;
  manifest.step = progress.step;
  if (rank == 0) {
    manifest = manifest_of(state, progress, evaluation);
    manifest.slices = slices_.in_files;
  }
  writer_->save(std::move(manifest), model_views.views, other_views.views, std::move(part));
}

// Every save asks anew, because an optimizer makes its state in the first step, and not on every
// rank in the same one.
bool Saver::learn_slices(const StateView& view) {
  slices_ = slices_of(view, group_);
  if (!slices_.flaw.empty() && let_all_write_)
    throw Error(ErrorCode::internal, "train",
                "a checkpoint cannot hold the state: " + slices_.flaw,
                "a strategy whose ranks together have each element of its state");
  const bool is_written_otherwise = group_.size() > 1 && !(parts_ && parts_->of_all_ranks);
  if (slices_.any() && let_all_write_ && is_written_otherwise) {
    auto [writer, parts] = let_all_write_();
    if (!parts)
      throw Error(ErrorCode::invalid_argument, "train",
                  "every rank writes its slices of the state, but some rank cannot write into "
                  "rank 0's checkpoint.dir",
                  "a checkpoint.dir that all ranks share");
    writer_ = writer;
    parts_ = std::move(parts);
    saves_ = 0;
  }
  return slices_.any();
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
