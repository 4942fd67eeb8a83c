// What a checkpoint says of itself: manifest.json. No torch.
//
// One line per field, so that people can read it; the last field is the SHA-256 of all text before
// it, so damage anywhere shows.
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

struct Manifest {
  // 1: one file of the optimizer; 2: one of each part. A newer one than this build knows is refused
  // with Error(unsupported).
  int format = 2;
  std::string version;          // Of Trireme. Filled by save().
  int64_t step = 0;             // Optimizer steps committed.
  plan::DataPosition position;  // Of the next batch.
  std::map<std::string, std::string>
      aliases;  // Tied weights: other name -> the name stored (safetensors has no aliases).
  std::vector<double>
      loss_history;  // Global mean loss of every step so far. Exact; a NaN keeps its sign alone.
  // JSON has no NaN and no infinity: keep those as text in the three below.
  Json optimizer = Json::object();  // Kind and scalar state, e.g. {"name": "Adam", "steps": {...}}.
  Json config = Json::object();     // The configuration the run had.
  Json extra = Json::object();      // Whatever else the engine keeps.
  std::map<std::string, std::string> files;  // File -> digest (digest.h). Filled by save().
};

// The loss of an evaluation at the manifest's step, if there was one: extra["evaluation"]["loss"].
std::optional<double> evaluation_loss(const Manifest& manifest);

// The text of manifest.json.
std::string to_text(const Manifest& manifest);
// Reads it back. `where` names the file in messages. Throws Error(corrupt) saying what is wrong, or
// Error(unsupported) for a newer format.
Manifest manifest_from_text(std::string_view text, const std::string& where);

}  // namespace trireme::checkpoint
