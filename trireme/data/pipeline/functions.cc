#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <trireme/config/registry.h>
#include <trireme/data/pipeline/functions.h>
#include <string_view>
#include <utility>

namespace trireme {
namespace {

template <typename Function>
struct Versioned {
  Function function;
  std::string version;
  explicit operator bool() const { return static_cast<bool>(function); }
};

config::Registry<Versioned<MapFunction>>& map_functions() {
  static config::Registry<Versioned<MapFunction>> functions("function for the stage map");
  return functions;
}

config::Registry<Versioned<DecodeFunction>>& decode_functions() {
  static config::Registry<Versioned<DecodeFunction>> functions(
      "function for the stage decode_record");
  return functions;
}

config::Registry<Versioned<FilterFunction>>& filter_functions() {
  static config::Registry<Versioned<FilterFunction>> functions("function for the stage filter");
  return functions;
}

std::string version_of_function(std::string_view stage, const std::string& name) {
  if (stage == "filter") return filter_functions().find(name).version;
  if (stage == "decode_record") return decode_functions().find(name).version;
  return map_functions().find(name).version;
}

}  // namespace

void register_map(const std::string& name, MapFunction function, const std::string& version) {
  map_functions().add(name, {std::move(function), version});
}

void register_decode(const std::string& name, DecodeFunction function,
                     const std::string& version) {
  decode_functions().add(name, {std::move(function), version});
}

void register_filter(const std::string& name, FilterFunction function,
                     const std::string& version) {
  filter_functions().add(name, {std::move(function), version});
}

namespace data {

MapFunction find_map(const std::string& name) { return map_functions().find(name).function; }
DecodeFunction find_decode(const std::string& name) {
  return decode_functions().find(name).function;
}
FilterFunction find_filter(const std::string& name) {
  return filter_functions().find(name).function;
}

FunctionVersions versions_of_functions(const Stages& stages) {
  FunctionVersions all;
  for (const Stage& stage : stages) {
    if (!calls_function(stage)) continue;
    const std::string version = version_of_function(stage.form->name, stage.word("function"));
    if (version.empty()) all.without_version = stage.describe();
    all.text += fmt::format("{} {}\n", version.size(), version);
  }
  return all;
}

}  // namespace data
}  // namespace trireme
