// Turns a checkpoint into one that an earlier version would have written.
#pragma once
#include <trireme/base/files.h>
#include <trireme/base/hash.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/folder.h>

#include "checkpoint_testing.h"

namespace trireme::checkpoint {

// The text of a manifest without its last brace, and with its seal.
inline std::string sealed(const std::string& body) {
  return body + ",\n  \"sha256\": \"" + sha256_hex(body) + "\"\n}\n";
}

inline std::string without_last_brace(const Json& fields) {
  std::string text = fields.dump();
  text.pop_back();
  return text;
}

inline void write_manifest(const std::filesystem::path& checkpoint, const Json& fields) {
  overwrite(checkpoint / kManifestFile, sealed(without_last_brace(fields)));
}

// The fields of a manifest of the newest format as format 1 or 2 had them. Both have the losses in
// the manifest.
inline Json fields_of_format(int format, Json fields, const std::vector<double>& losses) {
  fields["loss_history"] = Json::array();
  for (const double loss : losses)
    fields["loss_history"].push_back(std::isfinite(loss) ? Json(loss)
                                     : std::isnan(loss)  ? Json("-nan")
                                                         : Json("inf"));
  for (const char* added : {"slices", "writers", "sha256"}) fields.erase(added);
  fields["format"] = format;
  return fields;
}

// Formats 1 and 2 have no digests of pieces. Early checkpoints of format 1 have the SHA-256 of
// each file.
inline void turn_into_format(int format, const std::filesystem::path& checkpoint) {
  Json fields = fields_of_format(format, Json::parse(read_file(checkpoint / kManifestFile)),
                                 open_checkpoint(checkpoint).manifest.loss_history);
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
