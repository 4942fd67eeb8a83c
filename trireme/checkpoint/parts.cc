#include <trireme/checkpoint/parts.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/json.h>
#include <trireme/checkpoint/leftovers.h>
#include <trireme/checkpoint/output_file.h>
#include <trireme/checkpoint/pieces.h>
#include <trireme/checkpoint/step_name.h>
#include <charconv>
#include <chrono>
#include <thread>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kLookAgain{2};
constexpr std::string_view kExtension = ".safetensors";

std::string note_of(int index) { return fmt::format("part-{}.json", index); }

std::string_view stem_of(std::string_view file) {
  return file.substr(0, file.size() - kExtension.size());
}

// Returns true for "optimizer-2.safetensors" and "optimizer.safetensors".
bool is_part_of(std::string_view file, std::string_view name) {
  const std::string_view stem = stem_of(file);
  if (name == file) return true;
  if (!name.starts_with(stem) || !name.ends_with(kExtension) || name.size() < file.size() + 2 ||
      name[stem.size()] != '-')
    return false;
  int index = 0;
  const char* const end = name.data() + name.size() - kExtension.size();
  const auto [stop, error] = std::from_chars(name.data() + stem.size() + 1, end, index);
  return error == std::errc() && stop == end && name == file_of_part(file, index);
}

// Writes the note under another name and then renames it, so that no reader finds half of it.
void leave_note(FileSystem& files, const fs::path& unfinished, int index, const Json& note) {
  const fs::path path = unfinished / note_of(index),
                 written = unfinished / (note_of(index) + ".new");
  OutputFile file(files, written);
  file.write(note.dump());
  file.finish();
  files.rename(written, path);
}

}  // namespace

std::string file_of_part(std::string_view file, int index) {
  return index == 0 ? std::string(file) : fmt::format("{}-{}{}", stem_of(file), index, kExtension);
}

std::vector<std::string> files_of_parts(const Manifest& manifest, std::string_view file) {
  std::vector<std::string> names;
  for (const auto& [name, digest] : manifest.files)
    if (is_part_of(file, name)) names.push_back(name);
  return names;
}

fs::path unfinished_path(const fs::path& folder, int64_t step, const Part& part) {
  return folder / writing_name(name_of_step(step), part.attempt);
}

void open_unfinished(FileSystem& files, const fs::path& unfinished) {
  // A link to a folder does not count, because nothing is written through links.
  const auto is_folder = [&] {
    std::error_code ignored;
    return fs::is_directory(fs::symlink_status(unfinished, ignored));
  };
  if (is_folder()) return;
  try {
    files.make_folder(unfinished);
  } catch (const Error&) {
    if (!is_folder()) throw;  // Otherwise another part was faster.
  }
}

std::map<std::string, std::string> write_files(FileSystem& files, const fs::path& unfinished,
                                               const std::vector<OutgoingFile>& content,
                                               const Part& part) {
  std::map<std::string, std::string> digests;
  PiecesByFile pieces;
  const auto write = [&](const OutgoingFile& outgoing) {
    OutputFile file(files, unfinished / outgoing.name, outgoing.pieces);
    for (const auto& bytes : outgoing.bytes) file.write(bytes);
    auto written = file.finish();
    digests[outgoing.name] = digest_text(written);
    return written;
  };
  for (const OutgoingFile& outgoing : content) pieces[outgoing.name] = write(outgoing);
  const PiecesFile file_of_pieces(pieces, part.index);
  write(file_of_pieces.content());
  return digests;
}

int writer_of(const Part& part, int index) {
  return part.ranks.empty() ? index : part.ranks.at(static_cast<size_t>(index));
}

std::string describe_writer(int writer) {
  return writer < 0 ? fmt::format("server {}", -1 - writer) : fmt::format("rank {}", writer);
}

void write_part(FileSystem& files, const fs::path& folder, int64_t step, const Part& part,
                const std::vector<OutgoingFile>& content) {
  const fs::path unfinished = unfinished_path(folder, step, part);
  Json note;
  try {
    open_unfinished(files, unfinished);
    note = {{"files", write_files(files, unfinished, content, part)}};
    files.sync_folder(unfinished);
  } catch (const Error& error) {
    note = {{"error", error.what()}};
  }
  leave_note(files, unfinished, part.index, note);
}

void collect_parts(FileSystem& files, const fs::path& unfinished, const Part& part,
                   const GoOnWaiting& go_on_waiting, Manifest& manifest) {
  const auto missing = [&] {
    std::vector<std::string> writers;
    std::error_code ignored;
    for (int index = 1; index < part.count; ++index)
      if (!fs::exists(unfinished / note_of(index), ignored))
        writers.push_back(describe_writer(writer_of(part, index)));
    return writers;
  };
  for (auto writers = missing(); !writers.empty(); writers = missing()) {
    if (!go_on_waiting())
      throw Error(ErrorCode::peer_lost, "checkpoint",
                  fmt::format("{} did not write a part of {}", fmt::join(writers, ", "),
                              unfinished.string()),
                  "older checkpoints are as they were");
    std::this_thread::sleep_for(kLookAgain);
  }
  for (int index = 1; index < part.count; ++index) {
    const fs::path path = unfinished / note_of(index);
    const Json note = Json::parse(read_file(path));
    if (note.contains("error"))
      throw Error(
          ErrorCode::io, "checkpoint",
          fmt::format("{} could not write its part: {}", describe_writer(writer_of(part, index)),
                      note["error"].get<std::string>()));
    for (const auto& [name, digest] : note.at("files").items()) {
      manifest.files[name] = digest.get<std::string>();
      manifest.writers[name] = writer_of(part, index);
    }
    files.remove(path);
  }
}

}  // namespace trireme::checkpoint
