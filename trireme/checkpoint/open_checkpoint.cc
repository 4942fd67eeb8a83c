#include <fmt/format.h>
#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/folder.h>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

Error corrupt(const fs::path& file, std::string_view what) {
  return Error(ErrorCode::corrupt, "checkpoint", fmt::format("{} {}", file.string(), what), "an older checkpoint");
}

void verify(const fs::path& path, const std::string& expected) {
  if (std::error_code ignored; !fs::is_regular_file(path, ignored)) throw corrupt(path, "is missing");
  if (const std::string actual = digest_of_file(path, expected, usable_cores()); actual != expected)
    throw corrupt(path, fmt::format("was changed or cut off: its hash is {}, the manifest says {}", actual, expected));
}

}  // namespace

Saved open_checkpoint(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    throw Error(ErrorCode::not_found, "checkpoint", fmt::format("there is no checkpoint {}", path.string()),
                "the path of a folder step-...");
  const fs::path manifest_path = path / kManifestFile;
  if (!fs::is_regular_file(manifest_path, ignored)) throw corrupt(manifest_path, "is missing");
  Saved saved{path, manifest_from_text(read_file(manifest_path), manifest_path.string()), nullptr, nullptr};
  for (const char* required : {kModelFile, kOptimizerFile})
    if (!saved.manifest.files.contains(required)) throw corrupt(manifest_path, fmt::format("does not list {}", required));
  for (const auto& [name, expected] : saved.manifest.files) {
    if (fs::path(name).filename() != name) throw corrupt(manifest_path, fmt::format("lists {}, which is no file beside it", name));
    verify(path / name, expected);
  }
  saved.model = std::make_unique<SafetensorsFile>(path / kModelFile);
  saved.optimizer = std::make_unique<SafetensorsFile>(path / kOptimizerFile);
  return saved;
}

}  // namespace trireme::checkpoint
