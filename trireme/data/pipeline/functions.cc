#include <ATen/core/Tensor.h>

#include <trireme/config/registry.h>
#include <trireme/data/pipeline/functions.h>
#include <utility>

namespace trireme {
namespace {

config::Registry<MapFunction>& map_functions() {
  static config::Registry<MapFunction> functions("function for the stage map");
  return functions;
}

config::Registry<FilterFunction>& filter_functions() {
  static config::Registry<FilterFunction> functions("function for the stage filter");
  return functions;
}

}  // namespace

void register_map(const std::string& name, MapFunction function) {
  map_functions().add(name, std::move(function));
}

void register_filter(const std::string& name, FilterFunction function) {
  filter_functions().add(name, std::move(function));
}

MapFunction data::find_map(const std::string& name) { return map_functions().find(name); }
FilterFunction data::find_filter(const std::string& name) { return filter_functions().find(name); }

}  // namespace trireme
