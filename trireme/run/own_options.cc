#include <trireme/base/error.h>
#include <trireme/run/own_options.h>
#include <mutex>

namespace trireme {
namespace {

struct RegisteredOptions {
  std::mutex mutex;
  std::map<std::type_index, std::any> defaults;
  config::Rows rows;
  bool in_table = false;  // More rows would come too late.
};
RegisteredOptions& registered_options() {
  static RegisteredOptions registered;
  return registered;
}

[[noreturn]] void refuse_own_options(const char* what) {
  throw Error(ErrorCode::invalid_argument, "config", what,
              "register_options() once for each struct, before a configuration is read or made");
}

}  // namespace

OwnOptions::OwnOptions() {
  RegisteredOptions& registered = registered_options();
  const std::lock_guard lock(registered.mutex);
  structs_ = registered.defaults;
}

const std::any& OwnOptions::find(std::type_index type) const {
  const auto found = structs_.find(type);
  if (found == structs_.end())
    refuse_own_options("these options were not registered when the configuration was made");
  return found->second;
}

config::Rows rows_of(const OwnOptions*) {
  RegisteredOptions& registered = registered_options();
  const std::lock_guard lock(registered.mutex);
  registered.in_table = true;
  return registered.rows;
}

void add_own_options(std::type_index type, std::any defaults, config::Rows rows) {
  RegisteredOptions& registered = registered_options();
  const std::lock_guard lock(registered.mutex);
  if (registered.in_table)
    refuse_own_options("options were registered after a configuration was read");
  if (!registered.defaults.emplace(type, std::move(defaults)).second)
    refuse_own_options("the same options were registered twice");
  for (config::Row& row : rows) registered.rows.push_back(std::move(row));
}

}  // namespace trireme
