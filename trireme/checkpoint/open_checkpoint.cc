#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/hash.h>
#include <trireme/checkpoint/folder.h>
#include <fstream>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

Error corrupt(const fs::path& file, std::string_view what) {
  return Error(ErrorCode::corrupt, "checkpoint", fmt::format("{} {}", file.string(), what), "an older checkpoint");
}

// Read, not mapped: a disk that fails then gives an error, not a signal.
std::string sha256_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> chunk(1 << 20);
  Sha256 sha;
  while (file) {
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    sha.update(std::string_view(chunk.data(), static_cast<size_t>(file.gcount())));
  }
  if (!file.eof())
    throw Error(ErrorCode::io, "checkpoint", fmt::format("cannot read {}", path.string()), "check the disk and the file's permissions");
  return sha.hex();
}

void verify(const fs::path& path, const std::string& expected) {
  if (std::error_code ignored; !fs::is_regular_file(path, ignored)) throw corrupt(path, "is missing");
  if (const std::string actual = sha256_of(path); actual != expected)
    throw corrupt(path, fmt::format("was changed or cut off: its SHA-256 is {}, the manifest says {}", actual, expected));
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
  for (const auto& [name, expected] : saved.manifest.files) verify(path / name, expected);
  saved.model = std::make_unique<SafetensorsFile>(path / kModelFile);
  saved.optimizer = std::make_unique<SafetensorsFile>(path / kOptimizerFile);
  return saved;
}

}  // namespace trireme::checkpoint
