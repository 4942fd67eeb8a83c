#include <trireme/checkpoint/folder.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/log.h>
#include <trireme/base/version.h>
#include <trireme/checkpoint/leftovers.h>
#include <trireme/checkpoint/output_file.h>
#include <algorithm>
#include <charconv>
#include <functional>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string name_of_step(int64_t step) { return fmt::format("step-{:09}", step); }

std::optional<int64_t> step_of_name(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return {};
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || stop != end || name != name_of_step(step)) return {};
  return step;
}

std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  try {
    return {fs::directory_iterator(folder), fs::directory_iterator()};
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::io, "checkpoint", fmt::format("cannot list {}: {}", folder.string(), error.code().message()),
                "check that the folder exists and can be read");
  }
}

// Newest first.
std::vector<int64_t> steps_in(const fs::path& folder) {
  std::vector<int64_t> steps;
  for (const auto& entry : entries_of(folder))
    if (const auto step = step_of_name(entry.path().filename()); step && entry.is_directory()) steps.push_back(*step);
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

// Removes what is not finished when the scope ends; what got its name by then is elsewhere.
struct Unfinished {
  fs::path path;
  ~Unfinished() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// Gives `written` its name. One that had the name is moved aside first, so that a crash leaves the old one or the new one to find.
void take_place(const fs::path& written, const fs::path& place) {
  const fs::path aside = place.parent_path() / replaced_name(place.filename().string());
  const bool replaces = fs::exists(place);
  if (replaces) fs::rename(place, aside);
  try {
    fs::rename(written, place);
  } catch (const fs::filesystem_error&) {
    if (replaces) fs::rename(aside, place);
    throw;
  }
  sync_folder(place.parent_path());
  if (std::error_code ignored; replaces) fs::remove_all(aside, ignored);  // If not now, by the next process that opens the folder.
}

}  // namespace

Folder::Folder(fs::path path, FolderOptions options) : path_(std::move(path)), options_(options) {
  if (options_.keep < 1)
    throw Error(ErrorCode::invalid_argument, "checkpoint", fmt::format("keep is {}, at least 1 checkpoint has to be kept", options_.keep),
                "2");
  require_writable_folder(path_);
  clean_leftovers(path_);
}

fs::path Folder::save(Manifest manifest, const std::vector<TensorView>& model, const std::vector<TensorView>& optimizer) {
  if (manifest.step < 0)
    throw Error(ErrorCode::invalid_argument, "checkpoint", fmt::format("a checkpoint of step {} was asked for", manifest.step),
                "0 or more");
  const std::string name = name_of_step(manifest.step);
  const fs::path place = path_ / name;
  try {
    const Unfinished unfinished{path_ / writing_name(name)};
    const fs::path& written = unfinished.path;
    fs::create_directory(written);
    manifest.version = version();
    manifest.files[kModelFile] = write_safetensors(written / kModelFile, model, {{"format", "pt"}});
    manifest.files[kOptimizerFile] = write_safetensors(written / kOptimizerFile, optimizer);
    write_file_atomically(written / kManifestFile, to_text(manifest));
    take_place(written, place);
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::io, "checkpoint", fmt::format("cannot save {}: {}", place.string(), error.code().message()),
                "check the disk and the folder's permissions");
  }
  prune(manifest.step);
  return place;
}

// Renamed first, so that a removal that is cut off leaves no half checkpoint under a checkpoint's name.
void Folder::prune(int64_t saved_step) const {
  try {
    int kept = 0;
    for (const int64_t step : steps_in(path_)) {
      if (step > saved_step || ++kept <= options_.keep) continue;
      const std::string name = name_of_step(step);
      fs::rename(path_ / name, path_ / writing_name(name));
      fs::remove_all(path_ / writing_name(name));
    }
  } catch (const std::exception& error) {  // The new one is safe: what could not be removed only takes space.
    log_warning("cannot remove an old checkpoint: {}", error.what());
  }
}

std::optional<Saved> Folder::newest() const { return newest_in(path_); }

std::optional<Saved> newest_in(const fs::path& folder) {
  std::string damages;
  for (const int64_t step : steps_in(folder)) {
    const fs::path path = folder / name_of_step(step);
    try {
      Saved saved = open_checkpoint(path);
      if (!damages.empty()) log_warning("using the newest whole checkpoint, {}", path.string());
      return saved;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::unsupported) throw;
      log_warning("skipping the checkpoint {}: {}", path.string(), error.what());
      damages += fmt::format("\n  {}", error.what());
    }
  }
  if (damages.empty()) return {};
  throw Error(ErrorCode::corrupt, "checkpoint", fmt::format("every checkpoint in {} is damaged:{}", folder.string(), damages),
              "restore one from a backup, or choose another checkpoint.dir to start anew");
}

bool has_checkpoints(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return false;
  const auto entries = entries_of(path);
  return std::any_of(entries.begin(), entries.end(), [](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename();
    return entry.is_directory() && (step_of_name(name) || is_replaced_name(name));
  });
}

}  // namespace trireme::checkpoint
