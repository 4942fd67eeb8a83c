// A checkpoint that several processes write together into a folder that all of them see. Each
// process writes its part of the tensors. No torch.
//
// The first part contains the manifest. Each other part writes its file, makes it durable and
// leaves a note beside it. The first part waits for all notes before it gives the checkpoint its
// name, so a visible checkpoint is whole here too. The processes need only the folder for this.
// They send no messages, so a save needs no order relative to the messages of training. PyTorch's
// distributed checkpoints have one file for each rank in the same way.
#pragma once
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
  // The rank that writes each part, by index. Messages use it; it may be empty.
  std::vector<int> ranks;
};

// A file of a checkpoint. Its bytes are given in pieces, in order.
struct OutgoingFile {
  std::string name;
  std::vector<std::span<const std::byte>> pieces;
  // The digest of all pieces. If empty, it is computed while they are written.
  std::string digest = {};
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
// Writes files durably and returns their digests. Throws Error(io).
std::map<std::string, std::string> write_files(FileSystem& files,
                                               const std::filesystem::path& unfinished,
                                               const std::vector<OutgoingFile>& content);

// Writes `content` and the note, for a part after the first. Throws Error(io) only if it cannot
// even leave a note of the failure.
void write_part(FileSystem& files, const std::filesystem::path& folder, int64_t step,
                const Part& part, const std::vector<OutgoingFile>& content);
// Waits for all notes and removes them, for the first part. Returns the digests of the other
// parts' files. Throws Error(io) with the failure that a part noted, and Error(peer_lost) that
// names the parts that did not arrive.
std::map<std::string, std::string> collect_parts(FileSystem& files,
                                                 const std::filesystem::path& unfinished,
                                                 const Part& part,
                                                 const GoOnWaiting& go_on_waiting);

}  // namespace trireme::checkpoint
