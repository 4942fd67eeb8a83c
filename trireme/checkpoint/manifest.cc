#include <trireme/checkpoint/manifest.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <cmath>
#include <limits>

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kSealStart = ",\n  \"sha256\": \"";
constexpr std::string_view kSealEnd = "\"\n}\n";
constexpr size_t kSealSize = kSealStart.size() + 64 + kSealEnd.size();

Error corrupt(const std::string& where, std::string_view what) {
  return Error(ErrorCode::corrupt, "checkpoint", fmt::format("{} {}", where, what),
               "use an older checkpoint");
}

// Numbers, and texts for the values that JSON lacks. Only formats 1 and 2 have it.
double loss_from_json(const Json& loss, const std::string& where) {
  using Limits = std::numeric_limits<double>;
  if (loss.is_number()) return loss.get<double>();
  if (loss == "nan") return Limits::quiet_NaN();
  if (loss == "-nan") return std::copysign(Limits::quiet_NaN(), -1.0);
  if (loss == "inf") return Limits::infinity();
  if (loss == "-inf") return -Limits::infinity();
  throw corrupt(where, fmt::format("has {} among its losses", loss.dump()));
}

std::vector<double> losses_from_json(const Json& list, const std::string& where) {
  // An iteration over a number would give the number itself.
  if (!list.is_array()) throw corrupt(where, "has no list of losses");
  std::vector<double> losses;
  for (const Json& loss : list) losses.push_back(loss_from_json(loss, where));
  return losses;
}

Json to_json(const std::map<std::string, std::map<std::string, StoredSlice>>& slices) {
  Json files = Json::object();
  for (const auto& [file, tensors] : slices)
    for (const auto& [name, slice] : tensors)
      files[file][name] = {{"tensor", slice.tensor}, {"shape", slice.shape}, {"from", slice.from}};
  return files;
}

std::map<std::string, std::map<std::string, StoredSlice>> slices_from_json(const Json& files) {
  std::map<std::string, std::map<std::string, StoredSlice>> slices;
  for (const auto& [file, tensors] : files.items())
    for (const auto& [name, slice] : tensors.items())
      slices[file][name] = {slice.at("tensor").get<std::string>(),
                            slice.at("shape").get<std::vector<int64_t>>(),
                            slice.at("from").get<std::vector<int64_t>>()};
  return slices;
}

void require_known_format(const Json& json, const std::string& where) {
  const auto format = json.is_object() ? json.find("format") : json.end();
  if (format == json.end() || !format->is_number_integer())
    throw corrupt(where, "has no format number");
  if (*format > kNewestFormat)
    throw Error(ErrorCode::unsupported, "checkpoint",
                fmt::format("{} has format {}, this build reads up to {}", where, format->dump(),
                            kNewestFormat),
                "a newer Trireme, or another checkpoint.dir");
}

void require_seal(std::string_view text, const std::string& where) {
  const bool sealed = text.size() > kSealSize && text.ends_with(kSealEnd) &&
                      text.substr(text.size() - kSealSize).starts_with(kSealStart);
  if (!sealed) throw corrupt(where, "does not end with its SHA-256");
  const std::string_view digest = text.substr(text.size() - kSealEnd.size() - 64, 64);
  const std::string actual = sha256_hex(text.substr(0, text.size() - kSealSize));
  if (digest != actual)
    throw corrupt(where,
                  fmt::format("was changed: its SHA-256 is {}, it says {}", actual, digest));
}

}  // namespace

std::optional<double> evaluated(const Manifest& manifest, const std::string& measure) {
  const auto evaluation = manifest.extra.find("evaluation");
  if (evaluation == manifest.extra.end() || !evaluation->is_object()) return {};
  const Json* values = &*evaluation;
  if (measure != "loss" && measure != "accuracy") {
    const auto metrics = evaluation->find("metrics");
    if (metrics == evaluation->end() || !metrics->is_object()) return {};
    values = &*metrics;
  }
  const auto value = values->find(measure);
  return value != values->end() && value->is_number() ? std::optional(value->get<double>())
                                                      : std::nullopt;
}

std::string to_text(const Manifest& manifest) {
  const std::pair<const char*, Json> fields[] = {
      {"format", manifest.format},
      {"version", manifest.version},
      {"step", manifest.step},
      {"position",
       Json{{"epoch", manifest.position.epoch}, {"consumed", manifest.position.consumed}}},
      {"aliases", manifest.aliases},
      {"optimizer", manifest.optimizer},
      {"config", manifest.config},
      {"extra", manifest.extra},
      {"files", manifest.files},
      {"slices", to_json(manifest.slices)},
      {"writers", manifest.writers},
  };
  std::string text = "{";
  for (const auto& [name, value] : fields) {
    text += text.size() > 1 ? ",\n  \"" : "\n  \"";
    text += name;
    // A path in the configuration may hold bytes that are not UTF-8; this must not cost
    // the run its checkpoint.
    text += "\": " + value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  const std::string digest = sha256_hex(text);
  return text.append(kSealStart).append(digest).append(kSealEnd);
}

Manifest manifest_from_text(std::string_view text, const std::string& where) {
  try {
    const Json json = Json::parse(text);
    require_known_format(json, where);
    require_seal(text, where);
    Manifest manifest;
    manifest.format = json.at("format").get<int>();
    manifest.version = json.at("version").get<std::string>();
    manifest.step = json.at("step").get<int64_t>();
    manifest.position = {json.at("position").at("epoch").get<int64_t>(),
                         json.at("position").at("consumed").get<int64_t>()};
    manifest.aliases = json.at("aliases").get<std::map<std::string, std::string>>();
    manifest.optimizer = json.at("optimizer");
    manifest.config = json.at("config");
    manifest.extra = json.at("extra");
    manifest.files = json.at("files").get<std::map<std::string, std::string>>();
    if (manifest.format < 3) {
      manifest.loss_history = losses_from_json(json.at("loss_history"), where);
    } else {
      manifest.slices = slices_from_json(json.at("slices"));
      manifest.writers = json.at("writers").get<std::map<std::string, int>>();
    }
    return manifest;
  } catch (const Json::exception& error) {
    throw corrupt(where, fmt::format("is not a manifest: {}", error.what()));
  }
}

}  // namespace trireme::checkpoint
