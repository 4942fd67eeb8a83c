// The description of a checkpoint: manifest.json.
//
// Each field has a line, so that people can read it. The last field is the SHA-256 of all text
// before it, so damage anywhere is noticed.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/data_plan.h>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

inline constexpr int kNewestFormat = 3;

// The slice that a tensor in a file is; its sizes are those of the stored tensor.
struct StoredSlice {
  std::string tensor;
  std::vector<int64_t> shape, from;
  bool operator==(const StoredSlice&) const = default;
};

struct Manifest {
  // 1: one file with optimizer state. 2: one such file for each part. 3: slices, digests of pieces
  // in files of their own, and the history out of the text. A format that is newer than this build
  // is refused with Error(unsupported). save() writes the newest.
  int format = kNewestFormat;
  std::string version;          // The version of Trireme. save() fills it in.
  int64_t step = 0;             // The number of committed optimizer steps.
  plan::DataPosition position;  // The position of the next batch.
  // Tied weights: other name -> the stored name (safetensors has no aliases).
  std::map<std::string, std::string> aliases;
  // The global mean loss of every step so far, bit by bit. It is not in the text, but in a file
  // (history.h). Formats 1 and 2 have it in the text, where a NaN keeps only its sign.
  std::vector<double> loss_history;
  // JSON has neither NaN nor infinity: store those as text in the next three fields.

  // Kind and scalar state, e.g. {"name": "Adam", "steps": {...}}.
  Json optimizer = Json::object();
  Json config = Json::object();              // The configuration of the run.
  Json extra = Json::object();               // Other state of the engine.
  std::map<std::string, std::string> files;  // File -> digest (digest.h). save() fills it in.
  // File -> the name of a tensor in it -> the slice that it is. Tensors that are not listed are
  // whole. Slices of one tensor may have the same name in different files.
  std::map<std::string, std::map<std::string, StoredSlice>> slices;
  std::map<std::string, int> writers;  // File -> its writer (Part::ranks). save() fills it in.
};

// Returns a value of the evaluation at the manifest's step, if there was one: "loss", "accuracy"
// or a metric by its name. They are in extra["evaluation"], metrics in its "metrics".
std::optional<double> evaluated(const Manifest& manifest, const std::string& measure);

// Returns the text of manifest.json.
std::string to_text(const Manifest& manifest);
// Reads the text back. `where` names the file in messages. Throws Error(corrupt) that says what is
// wrong, or Error(unsupported) for a newer format.
Manifest manifest_from_text(std::string_view text, const std::string& where);

}  // namespace trireme::checkpoint
