// A checkpoint that several processes write together, each its part of the tensors, in a folder
// that all of them see. No torch.
//
// The first part has the manifest. Each other part writes its file, makes it durable, and says so
// by a note beside it; the first one waits for all notes before it gives the checkpoint its name,
// so what can be seen is whole here too. Nothing but the folder is needed for it: no message, and
// so no order with what training sends. PyTorch's distributed checkpoints have a file for each rank
// in the same way.
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
  std::string attempt;  // Of more than one part: the same in all parts of one save, and in no other
                        // save of this folder.
  std::vector<int> ranks;  // By index: who writes it. For messages; may be empty.
};

// A file of a checkpoint: its bytes in pieces, in order.
struct OutgoingFile {
  std::string name;
  std::vector<std::span<const std::byte>> pieces;
  std::string digest = {};  // Of all of them; empty: to be found while they are written.
};

// Asked again and again while other parts are not ready: false when they are not to be waited for
// any more. May throw.
using GoOnWaiting = std::function<bool()>;

// "optimizer.safetensors" of the first part, "optimizer-2.safetensors" of the third.
std::string file_of_part(std::string_view file, int index);
// Those of all parts that the manifest lists.
std::vector<std::string> files_of_parts(const Manifest& manifest, std::string_view file);
// Where a checkpoint is written until it has its name.
std::filesystem::path unfinished_path(const std::filesystem::path& folder, int64_t step,
                                      const Part& part);
// Makes that folder unless another part has.
void open_unfinished(FileSystem& files, const std::filesystem::path& unfinished);
// Writes files, durably, and returns their digests. Throws Error(io).
std::map<std::string, std::string> write_files(FileSystem& files,
                                               const std::filesystem::path& unfinished,
                                               const std::vector<OutgoingFile>& content);

// Of another part than the first: writes `content` and the note. Throws Error(io) only if not even
// a note of the failure could be left.
void write_part(FileSystem& files, const std::filesystem::path& folder, int64_t step,
                const Part& part, const std::vector<OutgoingFile>& content);
// Of the first one: waits for all notes, removes them, and returns the digests of the other parts'
// files. Throws Error(io) with what a part could not do, Error(peer_lost) naming the parts that did
// not come.
std::map<std::string, std::string> collect_parts(FileSystem& files,
                                                 const std::filesystem::path& unfinished,
                                                 const Part& part,
                                                 const GoOnWaiting& go_on_waiting);

}  // namespace trireme::checkpoint
