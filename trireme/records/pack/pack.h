// Writes the records of a reader into new files that are quick to read.
#pragma once
#include <trireme/base/json.h>
#include <trireme/records/record.h>
#include <trireme/records/unpack.h>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::records {

struct PackOptions {
  std::string to;  // A name of kPackTargets.
  // A folder that is not there yet, or is empty and no mount point; or a link to one.
  std::filesystem::path output;
  int64_t shard_bytes =
      256'000'000;  // The most in a shard of webdataset or tfrecord before it is compressed.
  Packing packing = Packing::none;  // Only for webdataset and tfrecord.
  std::string field;  // tokens: the field that has them; empty: see find_token_field().
  std::optional<uint64_t> shuffle;  // A seed: the records in a random order.
};

struct PackPart {
  std::string folder;  // Below the output; empty: the output itself.
  std::shared_ptr<const Reader> reader;
};

struct PackedPart {
  std::filesystem::path folder;
  std::vector<std::string> files;
  int64_t records = 0, bytes = 0;  // Bytes before they are compressed.
  Json to_json() const;
};

inline constexpr std::string_view kPackTargets[] = {"webdataset", "tfrecord", "npy", "tokens"};

// Throws what pack_records() throws for an option or an output, before any record is read.
void check_pack(const PackOptions& options);

// Everything is written into a folder beside the output, which gets its name when all files are
// whole and on the disk. An error or a killed process leaves no output. Throws Error:
// invalid_argument for a wrong option, for an output that is in use, and for a record that the
// target cannot hold as it is; io naming the file; and what the readers throw.
std::vector<PackedPart> pack_records(const std::vector<PackPart>& parts,
                                     const PackOptions& options);

}  // namespace trireme::records
