#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/checkpoint/folder.h>
#include <trireme/checkpoint/kept_folder.h>
#include <trireme/checkpoint/leftovers.h>
#include <trireme/checkpoint/step_name.h>
#include <algorithm>
#include <fstream>
#include <vector>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCopyBytes = size_t{1} << 20;

// Tells a checkpoint from another one of its step; empty if it is gone.
std::optional<fs::file_time_type> time_of_manifest(const fs::path& checkpoint) {
  std::error_code error;
  const auto time = fs::last_write_time(checkpoint / kManifestFile, error);
  return error ? std::nullopt : std::optional(time);
}

}  // namespace

KeptFolder::KeptFolder(fs::path folder, FileSystem& files)
    : folder_(std::move(folder)), files_(files) {
  require_writable_folder(folder_);
  clean_leftovers(files_, folder_);
}

std::optional<fs::path> KeptFolder::take(const fs::path& checkpoint) {
  const auto before = time_of_manifest(checkpoint);
  if (!before) return std::nullopt;
  const fs::path taken = folder_ / writing_name(checkpoint.filename().string());
  files_.remove_tree(taken);
  files_.make_folder(taken);
  try {
    for (const FileSystem::Entry& file : files_.list(checkpoint))
      if (!files_.link(checkpoint / file.name, taken / file.name))
        copy(checkpoint / file.name, taken / file.name);
  } catch (const Error&) {
    drop(taken);
    if (time_of_manifest(checkpoint) == before) throw;
    return std::nullopt;
  }
  if (time_of_manifest(checkpoint) == before) return taken;
  drop(taken);
  return std::nullopt;
}

void KeptFolder::copy(const fs::path& from, const fs::path& to) {
  std::ifstream source(from, std::ios::binary);
  if (!source) refuse("read", from, errno);
  const auto target = files_.create(to);
  std::vector<char> bytes(kCopyBytes);
  while (source.read(bytes.data(), std::ssize(bytes)) || source.gcount() > 0) {
    auto rest = std::as_bytes(std::span(bytes.data(), static_cast<size_t>(source.gcount())));
    while (!rest.empty()) rest = rest.subspan(target->write(rest));
  }
  if (source.bad()) refuse("read", from, errno);
  target->sync();
}

fs::path KeptFolder::keep(const fs::path& taken) {
  const std::string name =
      taken.filename().string().substr(writing_name("").size());  // Of the checkpoint.
  const fs::path place = folder_ / name, aside = folder_ / replaced_name(name);
  files_.sync_folder(taken);
  if (is_there(place)) files_.rename(place, aside);
  files_.rename(taken, place);
  files_.sync_folder(folder_);
  if (is_there(aside)) files_.remove_tree(aside);
  keep_only(*step_of_name(name));
  return place;
}

void KeptFolder::drop(const fs::path& taken) { files_.remove_tree(taken); }

void KeptFolder::keep_only(int64_t step) {
  if (!is_there(folder_ / name_of_step(step))) return;
  for (const int64_t each : steps_in(files_, folder_)) {
    if (each == step) continue;
    // An interrupted removal leaves no half checkpoint under a checkpoint's name.
    const fs::path doomed = folder_ / writing_name(name_of_step(each));
    files_.rename(folder_ / name_of_step(each), doomed);
    files_.sync_folder(folder_);
    files_.remove_tree(doomed);
  }
}

}  // namespace trireme::checkpoint
