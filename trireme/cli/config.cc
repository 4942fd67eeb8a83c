#include <trireme/cli/config.h>
#include <trireme/cli/config_check.h>
#include <trireme/cli/config_value.h>
#include <trireme/cli/config_yaml.h>
#include <filesystem>

namespace trireme::cli {
namespace {

constexpr int64_t kDefaultEpochs = 10;

void apply(Config& config, GivenKeys& given, const Assignment& assignment, bool by_set) {
  const Key& key = *find_key(assignment.key);
  set_value(config, key, assignment);
  if (is_automatic(config, key)) {
    given.erase(assignment.key);  // The same as a key that was not given.
  } else {
    given[assignment.key] = {assignment.origin, by_set};
  }
}

}  // namespace

Config load_config(const ConfigSource& source) {
  Config config;
  GivenKeys given;
  if (!source.file.empty()) {
    for (const Assignment& assignment : read_yaml(source.file))
      apply(config, given, assignment, /*by_set=*/false);
  }
  for (const std::string& text : source.set)
    apply(config, given, read_set("--set", text), /*by_set=*/true);
  for (const auto& [option, text] : source.options)
    apply(config, given, read_set(option, text), /*by_set=*/true);
  // A path through a folder that does not exist yet would otherwise change once that folder is
  // made.
  for (std::string* const dir : {&config.checkpoint.dir, &config.run.dir})
    *dir = std::filesystem::path(*dir).lexically_normal().string();
  drop_overridden(config, given);
  check(config, given);
  if (config.train.epochs < 0 && config.train.steps < 0) config.train.epochs = kDefaultEpochs;
  return config;
}

}  // namespace trireme::cli
