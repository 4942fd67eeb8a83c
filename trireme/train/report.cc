#include <trireme/base/version.h>
#include <trireme/train/report.h>

namespace trireme {
Json Report::to_json() const {
  Json losses = Json::array();
  for (const double loss : loss_history) losses.push_back(finite_or_null(loss));
  Json json = {{"trireme", version()},
               {"strategy", strategy},
               {"workers", workers},
               {"world_size", world_size},
               {"steps", steps},
               {"epochs", epochs},
               {"resumed_from_step", resumed_from_step},
               {"stopped", stopped},
               {"stop_reason", stop_reason.empty() ? Json() : Json(stop_reason)},
               {"train_loss", finite_or_null(train_loss)}};
  json["eval"] = eval ? Json{{"loss", finite_or_null(eval->loss)},
                             {"accuracy", finite_or_null(eval->accuracy)},
                             {"samples", eval->samples}}
                      : Json(nullptr);
  if (eval)
    for (const auto& [name, value] : eval->metrics)
      json["eval"]["metrics"][name] = finite_or_null(value);
  // A figure is null if no step was run.
  const auto measured = [](double value) {
    return value > 0 ? finite_or_null(value) : Json(nullptr);
  };
  const auto known = [](int64_t bytes) { return bytes > 0 ? Json(bytes) : Json(nullptr); };
  json["skipped_steps"] = skipped_steps;
  json["samples"] = samples.to_json();
  json["precision"] = precision;
  json["loss_scale"] = loss_scale;
  json["learning_rate_scale"] = learning_rate_scale;
  json["compression"] = compression;
  json["local_steps"] = local_steps;
  json["plan_digest"] = plan_digest;
  json["input_plan_digest"] = input_plan_digest;
  json["exchange_operations_per_step"] = exchange_operations_per_step;
  json["exchange_bytes_per_step"] = exchange_bytes_per_step;
  json["updated_elements"] = updated_elements;
  json["mesh"] = mesh;
  json["bubble"] = bubble;
  json["roles"] = roles;
  json["parameter_server"] = parameter_server;
  json["evaluator"] = evaluator;
  json["activation_bytes"] = Json::array();
  for (size_t rank = 0; rank < activation_bytes.size(); ++rank)
    json["activation_bytes"].push_back({{"measured", known(activation_bytes[rank])},
                                        {"predicted", known(predicted_activation_bytes[rank])}});
  json["parameter_bytes"] = parameter_bytes;
  json["samples_per_second"] = measured(samples_per_second);
  json["wall_seconds"] = wall_seconds;
  json["seconds_to_first_step"] = measured(seconds_to_first_step);
  json["cpu_seconds"] = cpu_seconds;
  json["peak_pss_bytes"] = peak_pss_bytes;
  json["cost"] = cost;
  json["checkpoint"] = checkpoint;
  json["parameters"] = parameters;
  json["parameters_sha256"] = parameters_sha256;
  json["input"] = input;
  json["generations"] = generations;
  for (const char* part : {"phases", "stragglers"}) json[part] = times.value(part, Json::array());
  json["files"] = files;
  json["loss_history"] = losses;
  return json;
}

}  // namespace trireme
