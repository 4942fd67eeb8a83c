#include <trireme/config/print.h>
#include <trireme/config/row.h>
#include <trireme/parallel/options_json.h>

namespace trireme {
namespace {

std::string scaling_text(const DataParallelOptions& options) {
  if (!options.loss_scaling) return "none";
  const auto& [initial, growth, backoff, growth_interval] = *options.loss_scaling;
  return Json({initial, growth, backoff, growth_interval}).dump();
}

}  // namespace

config::Rows rows_of(const DataParallelOptions*) {
  using O = DataParallelOptions;
  const auto shown = [](std::string_view name) {
    return config::Row{.name = name, .in_file = false};
  };
  return config::all_of<O>(
      {config::row(&O::clip_norm, shown("train.clip_norm")),
       config::row(&O::gradient_norm, shown("gradient_norm")),
       config::row(&O::share_parameters, shown("strategy.share_parameters")),
       // The other members of the guard are for tests.
       config::row_as_text<O>([](const O& o) { return Json(o.guard.wanted).dump(); }, nullptr,
                              shown("guard")),
       // Hosts may have different folders.
       config::row_as_text<O>([](const O& o) { return std::string(o.offload.name()); }, nullptr,
                              shown("memory.offload")),
       config::part(&O::buckets), config::part(&O::compression), config::part(&O::local),
       config::row(&O::virtual_shards, shown("reproducible.virtual_shards")),
       config::row(&O::skip_nonfinite, shown("skip_nonfinite")),
       config::row(&O::trains_apart, shown("trains_apart")),
       config::row_as_text<O>(scaling_text, nullptr, shown("train.loss_scale")),
       config::row_as_text<O>([](const O& o) { return Json(bool{o.accept}).dump(); }, nullptr,
                              shown("accept")),
       config::row_as_text<O>([](const O& o) { return Json(bool{o.weight}).dump(); }, nullptr,
                              shown("leaves means")),
       config::row(&O::state_follows, shown("state follows"))});
}

Json to_json(const DataParallelOptions& options) {
  Json json = Json::object();
  for (auto& [key, value] : agreed_values(config::table_of<DataParallelOptions>(), &options))
    json[key] = std::move(value);
  return json;
}

}  // namespace trireme
