// Turns a checkpoint into one that an earlier version would have written.
#pragma once
#include <trireme/base/files.h>
#include <trireme/base/hash.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/folder.h>

#include "checkpoint_testing.h"

namespace trireme::checkpoint {

inline void write_manifest(const std::filesystem::path& checkpoint, const Json& fields) {
  std::string text = fields.dump();
  text.pop_back();
  overwrite(checkpoint / kManifestFile,
            text + ",\n  \"sha256\": \"" + sha256_hex(text) + "\"\n}\n");
}

// Formats 1 and 2 have the losses in the manifest and no digests of pieces. Early checkpoints of
// format 1 have the SHA-256 of each file.
inline void turn_into_format(int format, const std::filesystem::path& checkpoint) {
  Json fields = Json::parse(read_file(checkpoint / kManifestFile));
  fields["loss_history"] = Json::array();
  for (const double loss : open_checkpoint(checkpoint).manifest.loss_history)
    fields["loss_history"].push_back(std::isfinite(loss) ? Json(loss)
                                     : std::isnan(loss)  ? Json("-nan")
                                                         : Json("inf"));
  for (const char* added : {"slices", "writers", "sha256"}) fields.erase(added);
  fields["format"] = format;
  for (const char* added : {"history.safetensors", "pieces.safetensors"}) {
    std::filesystem::remove(checkpoint / added);
    fields["files"].erase(added);
  }
  if (format == 1)
    for (const auto& [name, digest] : fields["files"].items())
      digest = digest_of_file(checkpoint / name, std::string(64, '0'), 1);
  write_manifest(checkpoint, fields);
}

}  // namespace trireme::checkpoint
