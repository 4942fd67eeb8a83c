#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/config/print.h>
#include <trireme/config/registration.h>
#include <trireme/config/row.h>
#include <trireme/data/pipeline/stage.h>
#include <trireme/run/config.h>
#include <trireme/run/model_library.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

namespace trireme {
namespace {

constexpr int64_t kDefaultEpochs = 10;

// The order of sections in documents. A section that is not here comes last.
constexpr std::array<std::string_view, 18> kSections = {
    "model",  "data",   "optimizer",  "schedule",     "strategy", "train",
    "memory", "guard",  "inject",     "reproducible", "elastic",  "device",
    "comm",   "launch", "checkpoint", "run",          "monitor",  "cost"};

auto place_of_section(const config::Row& row) {
  return std::find(kSections.begin(), kSections.end(), row.name.substr(0, row.name.find('.'))) -
         kSections.begin();
}

// A programme's own key may have the name of another.
void refuse_keys_twice(const config::Rows& rows) {
  std::set<std::string_view> names;
  for (const config::Row& row : rows)
    if (!names.insert(row.name).second)
      throw Error(ErrorCode::invalid_argument, "config",
                  fmt::format("the key {} already exists", row.name), "another name");
}

}  // namespace

config::Rows rows_of(const RecordOptions*) {
  using O = RecordOptions;
  return config::all_of<O>(
      {config::row(&O::dir, {.name = "run.dir",
                             .meaning = "Folder of logs and report; empty: a new folder under "
                                        "runs/, named after data and time.",
                             .agreed = false}),
       config::row(&O::progress,
                   {.name = "monitor.progress",
                    .meaning = "Show a progress bar, or plain lines if there is no terminal.",
                    .agreed = false}),
       config::row(&O::json_lines, {.name = "monitor.json_lines",
                                    .meaning = "Write one JSON line per step.",
                                    .agreed = false}),
       config::row(&O::tensorboard, {.name = "monitor.tensorboard",
                                     .meaning = "Write TensorBoard events.",
                                     .agreed = false})});
}

config::Rows rows_of(const WeightsSource*) {
  using O = WeightsSource;
  return config::all_of<O>(
      {config::row(&O::file,
                   {.name = "model.weights",
                    .meaning = "File with the initial weights: a checkpoint, a .safetensors or "
                               "a .pt file (docs/checkpoints.md); empty: random ones. A run that "
                               "continues takes those of its checkpoint.",
                    .agreed = false}),
       config::row(&O::optional,
                   {.name = "model.weights_optional",
                    .meaning = "Regular expression for the tensors that model.weights may lack, "
                               "such as `^head\\.`: they start at random; empty: none."})});
}

config::Rows rows_of(const Config*) {
  using O = Config;
  return config::all_of<O>(
      {config::part(&O::model), config::part(&O::data), config::part(&O::optimizer),
       config::part(&O::tables), config::part(&O::weights),
       config::row(&O::library,
                   {.name = "model.library",
                    .meaning = "A shared object or a programme with models, data sets, losses "
                               "and metrics of your own (docs/models.md); empty: none.",
                    .agreed = false}),
       config::row(&O::metrics,
                   {.name = "train.metrics",
                    .meaning = "The metrics that evaluations compute besides loss and accuracy: "
                               "names that a programme or model.library registers, with commas "
                               "between them; none: no others."}),
       config::row(&O::loss, {.name = "loss.name",
                              .meaning = "The loss of a batch: cross_entropy, mse (mean squared "
                                         "error), or one that a programme registers.",
                              .choices = loss_names}),
       config::part(&O::trainer), config::part(&O::world), config::part(&O::patience),
       config::part(&O::record),
       config::row(&O::expect,
                   {.name = "inject.expect",
                    .meaning = "What must hold at the end: same-loss, exactly-once, or both "
                               "(docs/faults.md); none: nothing is checked. --expect sets it."}),
       config::part(&O::own)});
}

const config::Table& table_of_config() {
  static const config::Table table = [] {
    config::Rows rows = rows_of(static_cast<const Config*>(nullptr));
    refuse_keys_twice(rows);
    std::stable_sort(rows.begin(), rows.end(), [](const config::Row& a, const config::Row& b) {
      return place_of_section(a) < place_of_section(b);
    });
    return config::Table(std::move(rows), std::make_shared<const Config>());
  }();
  return table;
}

Config load_config(const ConfigSource& source) {
  config::throw_if_registration_failed();
  if (const auto library = config::text_of(source, table_of_config(), "model.library");
      !library.empty())
    use_model_library(library);
  Config config;
  const config::GivenKeys given = config::read(source, table_of_config(), &config);
  // A path through a folder that does not exist yet would otherwise change once that folder is
  // made.
  for (std::string* const dir : {&config.trainer.checkpoint.dir, &config.record.dir})
    *dir = std::filesystem::path(*dir).lexically_normal().string();
  // An empty text cannot be passed on to workers. It means the same.
  if (config.expect.empty()) config.expect = "none";
  config::check_with_origins(given, [&] {
    check(config);
    const bool scales = config.trainer.dtype == plan::DType::float16 ||
                        config.trainer.autocast == plan::DType::float16;
    if (given.contains("train.loss_scale") && !scales)
      throw Error(ErrorCode::invalid_argument, "config",
                  "train.loss_scale is for train.precision fp16 or train.dtype float16",
                  "leave train.loss_scale out");
  });
  if (config.trainer.epochs < 0 && config.trainer.steps < 0)
    config.trainer.epochs = kDefaultEpochs;
  return config;
}

Config load_options(const std::filesystem::path& file, const std::vector<std::string>& set) {
  return load_config({file, set, {}});
}

std::vector<std::pair<std::string, std::string>> flatten(const Config& config) {
  return config::flatten(table_of_config(), &config);
}

Json to_json(const Config& config) { return config::to_json(table_of_config(), &config); }

std::vector<std::string> to_settings(const Config& config) {
  return config::to_settings(table_of_config(), &config);
}

Json keys_to_agree(const Config& config) {
  Json keys = Json::object();
  for (auto& [key, value] : config::agreed_values(table_of_config(), &config))
    if (table_of_config().find(key)) keys[key] = std::move(value);
  for (const char* const key : {"data.stages", "data.test_stages"})
    if (keys.contains(key))
      keys[key] = data::text_to_agree(key, keys[key].get_ref<const std::string&>());
  return keys;
}

}  // namespace trireme
