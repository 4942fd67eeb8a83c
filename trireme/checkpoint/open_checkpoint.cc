#include <fmt/format.h>
#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/catalogue.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/history.h>
#include <trireme/checkpoint/open_checkpoint.h>
#include <trireme/checkpoint/pieces.h>
#include <trireme/checkpoint/step_name.h>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

Error corrupt(const fs::path& file, std::string_view what) {
  return Error(ErrorCode::corrupt, "checkpoint", fmt::format("{} {}", file.string(), what),
               "an older checkpoint");
}

}  // namespace

Saved open_manifest(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    throw Error(ErrorCode::not_found, "checkpoint",
                fmt::format("there is no checkpoint {}", path.string()),
                "the path of a folder step-...");
  const fs::path manifest_path = path / kManifestFile;
  if (!fs::is_regular_file(manifest_path, ignored)) throw corrupt(manifest_path, "is missing");
  Saved saved{path, manifest_from_text(read_file(manifest_path), manifest_path.string()), nullptr,
              nullptr};
  std::vector<const char*> required = {kModelFile, kOptimizerFile};
  if (saved.manifest.format >= 3) required.insert(required.end(), {kHistoryFile, kPiecesFile});
  for (const char* const name : required)
    if (!saved.manifest.files.contains(name))
      throw corrupt(manifest_path, fmt::format("does not list {}", name));
  for (const auto& [name, digest] : saved.manifest.files) {
    if (fs::path(name).filename() != name)
      throw corrupt(manifest_path, fmt::format("lists {}, which is not a file beside it", name));
    const auto writer = saved.manifest.writers.find(name);
    if (!fs::is_regular_file(path / name, ignored))
      throw corrupt(path / name,
                    writer == saved.manifest.writers.end()
                        ? "is missing"
                        : fmt::format("is missing; {} wrote it", describe_writer(writer->second)));
  }
  return saved;
}

void open_files(Saved& saved) {
  const auto open = [&](const char* file) {
    std::vector<fs::path> paths;
    for (const std::string& name : files_of_parts(saved.manifest, file))
      paths.push_back(saved.path / name);
    return std::make_unique<SafetensorsFiles>(paths, [&](const auto& name, const auto& tensor) {
      const auto slices = saved.manifest.slices.find(name);
      return slices != saved.manifest.slices.end() && slices->second.contains(tensor);
    });
  };
  saved.model = open(kModelFile);
  saved.optimizer = open(kOptimizerFile);
  if (saved.manifest.format >= 3)
    saved.manifest.loss_history = read_history(saved.path, saved.manifest);
  if (saved.manifest.slices.empty()) return;
  for (const auto& [file, slices] : saved.manifest.slices)
    if (!saved.manifest.files.contains(file))
      throw corrupt(saved.path / kManifestFile,
                    fmt::format("has slices of {}, which it does not list", file));
  for (const char* const kind : {kModelFile, kOptimizerFile}) catalogue_of(saved, kind);
}

void require_digest(const fs::path& file, const std::string& actual, const std::string& expected) {
  if (actual != expected)
    throw corrupt(file, fmt::format("was changed or cut off: its hash is {}, the manifest says {}",
                                    actual, expected));
}

void verify(const Saved& saved) {
  for (const auto& [name, expected] : saved.manifest.files)
    require_digest(saved.path / name, digest_of_file(saved.path / name, expected, usable_cores()),
                   expected);
}

Saved open_checkpoint(const fs::path& path) {
  Saved saved = open_manifest(path);
  verify(saved);
  open_files(saved);
  return saved;
}

std::optional<Saved> newest_whole(const fs::path& folder,
                                  const std::function<Saved(const fs::path&)>& open) {
  std::string damages;
  for (const int64_t step : steps_in(disk(), folder)) {
    const fs::path path = folder / name_of_step(step);
    try {
      Saved saved = open(path);
      if (!damages.empty()) log_warning("using the newest whole checkpoint, {}", path.string());
      return saved;
    } catch (const Error& error) {
      const bool damaged = error.code() == ErrorCode::corrupt || error.code() == ErrorCode::io ||
                           error.code() == ErrorCode::not_found;
      if (!damaged) throw;
      log_warning("skipping the checkpoint {}: {}", path.string(), error.what());
      damages += fmt::format("\n  {}", error.what());
    }
  }
  if (damages.empty()) return {};
  throw Error(ErrorCode::corrupt, "checkpoint",
              fmt::format("every checkpoint in {} is damaged:{}", folder.string(), damages),
              "restore one from a backup, or choose another checkpoint.dir to start anew");
}

std::optional<Saved> newest_in(const fs::path& folder) {
  return newest_whole(folder, open_checkpoint);
}

}  // namespace trireme::checkpoint
