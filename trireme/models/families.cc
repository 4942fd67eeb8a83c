#include <trireme/config/names.h>
#include <trireme/models/amoebanet.h>
#include <trireme/models/cnn.h>
#include <trireme/models/dlrm.h>
#include <trireme/models/family.h>
#include <trireme/models/gpt.h>
#include <trireme/models/mlp.h>
#include <trireme/models/resnet.h>
#include <algorithm>
#include <map>
#include <utility>

namespace trireme::models {
namespace {

bool has_entry(const std::vector<std::string_view>& list, std::string_view entry) {
  return std::find(list.begin(), list.end(), entry) != list.end();
}

std::map<std::string, OwnShapes>& own_shapes() {
  static std::map<std::string, OwnShapes> all;
  return all;
}

config::Names& known_models() {
  static config::Names names = [] {
    std::vector<std::string> shipped;
    for (const Family& family : families())
      shipped.insert(shipped.end(), family.names.begin(), family.names.end());
    for (const Family& family : families())
      shipped.insert(shipped.end(), family.presets.begin(), family.presets.end());
    return config::Names(std::move(shipped));
  }();
  return names;
}

}  // namespace

bool Family::has_key(std::string_view key) const { return has_entry(keys, key); }
bool Family::has_preset(std::string_view name) const { return has_entry(presets, name); }

// The table of the families. build.cc has the functions that make their modules.
const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      mlp_family(), cnn_family(), gpt_family(), resnet_family(), amoebanet_family(), dlrm_family(),
  };
  return all;
}

const Family* family_of(const ModelOptions& options) {
  for (const Family& family : families())
    if (has_entry(family.names, options.name) || has_entry(family.presets, options.name))
      return &family;
  return nullptr;
}

std::vector<std::string_view> names_with_key(std::string_view key) {
  std::vector<std::string_view> names;
  for (const Family& family : families())
    if (has_entry(family.keys, key))
      names.insert(names.end(), family.names.begin(), family.names.end());
  return names;
}

std::vector<std::string_view> presets_with_key(std::string_view key) {
  std::vector<std::string_view> presets;
  for (const Family& family : families())
    if (has_entry(family.preset_keys, key))
      presets.insert(presets.end(), family.presets.begin(), family.presets.end());
  return presets;
}

std::vector<std::string> model_names() { return known_models().all(); }

// A model is registered before its name is used.
void add_model(const std::string& name, OwnShapes shapes) {
  own_shapes()[name] = std::move(shapes);
  known_models().add(name);
}

const OwnShapes* own_shapes_of(const ModelOptions& options) {
  const auto found = own_shapes().find(options.name);
  return found != own_shapes().end() ? &found->second : nullptr;
}

}  // namespace trireme::models
