#include <trireme/checkpoint/folder.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/log.h>
#include <trireme/base/version.h>
#include <trireme/checkpoint/folder_lock.h>
#include <trireme/checkpoint/history.h>
#include <trireme/checkpoint/leftovers.h>
#include <trireme/checkpoint/output_file.h>
#include <trireme/checkpoint/step_name.h>
#include <algorithm>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

// Makes each folder durable before it returns: after a power failure a checkpoint in a missing
// folder would be lost.
void make_folders(FileSystem& files, const fs::path& path) {
  std::error_code ignored;
  if (path.empty() || fs::exists(path, ignored)) return;
  const fs::path above = path.parent_path();
  make_folders(files, above);
  try {
    files.make_folder(path);
  } catch (const Error&) {
    if (!fs::is_directory(path, ignored)) throw;  // Otherwise another process was faster.
  }
  files.sync_folder(above.empty() ? fs::path(".") : above);
}

// Manifests of before there was a choice do not name the measure.
BestBy best_by_of(const Manifest& manifest) {
  BestBy by;
  const auto told = manifest.extra.find("best_by");
  if (told == manifest.extra.end() || !told->is_object()) return by;
  if (const auto name = told->find("measure"); name != told->end() && name->is_string())
    by.measure = *name;
  if (const auto higher = told->find("higher_is_better");
      higher != told->end() && higher->is_boolean())
    by.higher_is_better = *higher;
  return by;
}

}  // namespace

TensorFiles::TensorFiles(const std::vector<TensorView>& model,
                         const std::vector<TensorView>& optimizer, int part)
    : model_(lay_out_model(model)), optimizer_(lay_out(optimizer)) {
  if (part == 0 || !model.empty()) add(kModelFile, model_, model, part);
  add(kOptimizerFile, optimizer_, optimizer, part);
}

void TensorFiles::add(const char* name, const SafetensorsLayout& layout,
                      const std::vector<TensorView>& tensors, int part) {
  OutgoingFile file{file_of_part(name, part), {std::as_bytes(std::span(layout.header))}};
  for (const size_t i : layout.order) file.bytes.push_back(tensors[i].bytes);
  content_.push_back(std::move(file));
}

Folder::Folder(fs::path path, RetentionOptions retention, FileSystem& files,
               Milliseconds lock_timeout)
    : path_(std::move(path)), retention_(retention), files_(files) {
  const auto refuse = [](const std::string& what, const char* remedy) {
    throw Error(ErrorCode::invalid_argument, "checkpoint", what, remedy);
  };
  if (retention.keep < 1)
    refuse(fmt::format("keep is {}, at least 1 checkpoint has to be kept", retention.keep), "2");
  if (retention.keep_every < 0 || retention.keep_best < 0)
    refuse(fmt::format("keep_every is {} and keep_best {}", retention.keep_every,
                       retention.keep_best),
           "0 or more");
  make_folders(files_, path_);
  lock_ = lock_folder(files_, path_, lock_timeout);
  clean_leftovers(files_, path_);
}

SafetensorsLayout lay_out_model(const std::vector<TensorView>& tensors) {
  return lay_out(tensors, {{"format", "pt"}});
}

fs::path Folder::path_of(int64_t step) const { return path_ / name_of_step(step); }

fs::path Folder::save(Manifest manifest, const std::vector<TensorView>& model,
                      const std::vector<TensorView>& optimizer) {
  return save(std::move(manifest), TensorFiles(model, optimizer).content());
}

fs::path Folder::save(Manifest manifest, const std::vector<OutgoingFile>& content,
                      const Part& part, const GoOnWaiting& go_on_waiting) {
  if (manifest.step < 0)
    throw Error(ErrorCode::invalid_argument, "checkpoint",
                fmt::format("a checkpoint of step {} was asked for", manifest.step), "0 or more");
  const fs::path place = path_of(manifest.step);
  const fs::path unfinished = unfinished_path(path_, manifest.step, part);
  try {
    write(manifest, content, part, go_on_waiting, unfinished);
    take_place(unfinished, place);
  } catch (const Error&) {
    try {
      files_.remove_tree(unfinished);
    } catch (const Error& error) {
      log_warning("the unfinished checkpoint stays until the next start: {}", error.what());
    }
    throw;
  }
  known_[manifest.step] = evaluated(manifest, retention_.best_by.measure);
  try {
    remove_outdated(manifest.step);
  } catch (const Error& error) {
    // The new checkpoint is safe. What could not be removed only takes space.
    log_warning("cannot remove an old checkpoint: {}", error.what());
  }
  return place;
}

void Folder::write(Manifest& manifest, const std::vector<OutgoingFile>& content, const Part& part,
                   const GoOnWaiting& go_on_waiting, const fs::path& unfinished) {
  const bool alone = part.count == 1;
  if (alone) files_.remove_tree(unfinished);
  open_unfinished(files_, unfinished);
  manifest.format = kNewestFormat;
  manifest.version = version();
  const HistoryFile history(manifest.loss_history);
  std::vector<OutgoingFile> all = content;
  all.push_back(history.content());
  manifest.files = write_files(files_, unfinished, all, part);
  manifest.writers.clear();
  for (const auto& [name, digest] : manifest.files) manifest.writers[name] = writer_of(part, 0);
  if (!alone) collect_parts(files_, unfinished, part, go_on_waiting, manifest);
  OutputFile file(files_, unfinished / kManifestFile);
  file.write(to_text(manifest));
  file.finish();
  files_.sync_folder(unfinished);
}

// Gives `written` its name. A checkpoint that has the name is moved aside first, so that after a
// crash either the old or the new one is found.
void Folder::take_place(const fs::path& written, const fs::path& place) {
  const fs::path aside = path_ / replaced_name(place.filename().string());
  const bool replaces = is_there(place);
  if (replaces) files_.rename(place, aside);
  try {
    files_.rename(written, place);
    files_.sync_folder(path_);
  } catch (const Error&) {
    if (replaces && !is_there(place)) files_.rename(aside, place);
    throw;
  }
  if (!replaces) return;
  try {
    files_.remove_tree(aside);
  } catch (const Error& error) {
    // The new checkpoint is safe. The next process that opens the folder tries to remove it again.
    log_warning("cannot remove the checkpoint that was replaced: {}", error.what());
  }
}

// Each checkpoint is first renamed durably, so an interrupted removal leaves no half checkpoint
// under a checkpoint's name. If one cannot be removed, for example because another user owns it,
// the others are removed all the same.
std::vector<int64_t> Folder::remove_outdated(int64_t saved_step) {
  const auto doomed = [&](int64_t step) { return path_ / writing_name(name_of_step(step)); };
  std::vector<int64_t> renamed;
  std::optional<Error> first_error;
  const auto attempt = [&](const auto& action) {
    try {
      action();
      return true;
    } catch (const Error& error) {
      if (!first_error) first_error = error;
      return false;
    }
  };
  for (const int64_t step : outdated(measured(), saved_step, retention_))
    if (attempt([&] {
          files_.remove_tree(doomed(step));
          files_.rename(path_of(step), doomed(step));
        }))
      renamed.push_back(step);
  if (!renamed.empty()) files_.sync_folder(path_);
  for (const int64_t step : renamed) attempt([&] { files_.remove_tree(doomed(step)); });
  if (first_error) throw *first_error;
  return renamed;
}

std::vector<int64_t> Folder::prune() {
  const auto whole = newest();
  if (whole) retention_.best_by = best_by_of(whole->manifest);
  return whole ? remove_outdated(whole->manifest.step) : std::vector<int64_t>{};
}

Measured Folder::measured() {
  Measured measured;
  for (const int64_t step : steps_in(files_, path_)) {
    auto known = known_.find(step);
    if (known == known_.end()) {
      std::optional<double> value;
      const fs::path manifest = path_of(step) / kManifestFile;
      try {
        if (retention_.keep_best > 0)
          value = evaluated(manifest_from_text(read_file(manifest), manifest.string()),
                            retention_.best_by.measure);
      } catch (const Error&) {
        value.reset();  // A damaged checkpoint cannot be the best.
      }
      known = known_.emplace(step, value).first;
    }
    measured.insert(*known);
  }
  return measured;
}

std::optional<Saved> Folder::newest() const { return newest_in(path_); }

bool has_checkpoints(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return false;
  const auto entries = disk().list(path);
  return std::any_of(entries.begin(), entries.end(), [](const FileSystem::Entry& entry) {
    return entry.is_folder && (step_of_name(entry.name) || is_replaced_name(entry.name));
  });
}

}  // namespace trireme::checkpoint
