// A checkpoint that several processes write together into a folder that all of them see. Each
// process writes its part of the tensors.
//
// The first part contains the manifest and the history. Each other part writes its files, makes
// them durable and leaves a note beside them. The first part waits for all notes before it gives
// the checkpoint its name, so a visible checkpoint is whole here too. The processes need only the
// folder for this. They send no messages, so a save needs no order relative to the messages of
// training. PyTorch's distributed checkpoints have one file for each rank in the same way.
#pragma once
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/file_system.h>
#include <trireme/checkpoint/manifest.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

// One of the processes that save a checkpoint.
struct Part {
  int index = 0, count = 1;
  // If there is more than one part, all parts of one save have the same text here, and no other
  // save of this folder has it.
  std::string attempt;
  // The writer of each part, by index: a rank, or -1 - i for parameter server i. Empty: part i is
  // rank i's.
  std::vector<int> ranks;
};

// A file of a checkpoint. Its bytes lie in several places, in order.
struct OutgoingFile {
  std::string name;
  std::vector<std::span<const std::byte>> bytes;
  // The digests of its pieces. If empty, they are computed while the file is written.
  std::vector<PieceDigest> pieces = {};
};

// A function that is called repeatedly while other parts are not ready. It returns false to stop
// waiting, and may throw.
using GoOnWaiting = std::function<bool()>;

// "optimizer.safetensors" for the first part, "optimizer-2.safetensors" for the third.
std::string file_of_part(std::string_view file, int index);
// Returns the files of all parts that the manifest lists.
std::vector<std::string> files_of_parts(const Manifest& manifest, std::string_view file);
// Returns the place where a checkpoint is written before it gets its name.
std::filesystem::path unfinished_path(const std::filesystem::path& folder, int64_t step,
                                      const Part& part);
// Creates that folder unless another part has already created it.
void open_unfinished(FileSystem& files, const std::filesystem::path& unfinished);
// Writes the files of a part durably, and the digests of their pieces (pieces.h). Returns the
// digests of all these files. Throws Error(io).
std::map<std::string, std::string> write_files(FileSystem& files,
                                               const std::filesystem::path& unfinished,
                                               const std::vector<OutgoingFile>& content,
                                               const Part& part);
// The writer of a part (Part::ranks).
int writer_of(const Part& part, int index);
std::string describe_writer(int writer);  // "rank 3", "server 0"

// Writes `content` and the note, for a part after the first. Throws Error(io) only if it cannot
// even leave a note of the failure.
void write_part(FileSystem& files, const std::filesystem::path& folder, int64_t step,
                const Part& part, const std::vector<OutgoingFile>& content);
// Waits for all notes and removes them, for the first part. Adds the other parts' files and their
// writers to the manifest. Throws Error(io) with the failure that a part noted, and
// Error(peer_lost) that names the parts that did not arrive.
void collect_parts(FileSystem& files, const std::filesystem::path& unfinished, const Part& part,
                   const GoOnWaiting& go_on_waiting, Manifest& manifest);

}  // namespace trireme::checkpoint
