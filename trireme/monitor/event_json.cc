#include <trireme/monitor/event_json.h>

#include <cmath>

namespace trireme::monitor {
namespace {

Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

// nlohmann-json would write a number that is not finite as null.
void name_nonfinite(Json& json) {
  if (json.is_number_float())
    json = number(json.get<double>());
  else if (json.is_structured())
    for (auto& part : json) name_nonfinite(part);
}

Json head(const char* kind, std::optional<double> unix_seconds) {
  Json json = {{"event", kind}};
  if (unix_seconds) json["time"] = std::round(*unix_seconds * 1000) / 1000;
  return json;
}

Json numbers(const std::map<std::string, double>& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) json[name] = number(value);
  return json;
}

// One rank alone exchanges nothing.
void add_exchange(Json& json, int64_t operations, int64_t bytes_sent) {
  if (operations == 0) return;
  json["operations"] = operations;
  json["bytes_sent"] = bytes_sent;
}

struct Writer {
  std::optional<double> time;

  Json operator()(const RunStart& start) const {
    Json json = head("start", time);
    json["name"] = start.name;
    json["strategy"] = start.strategy;
    json["workers"] = start.workers;
    json["world_size"] = start.world_size;
    json["total_steps"] = start.total_steps;
    json["first_step"] = start.first_step;
    json["steps_per_epoch"] = start.steps_per_epoch;
    json["parameters"] = start.parameters;
    return json;
  }
  Json operator()(const StepRecord& step) const {
    Json json = head("step", time);
    json["step"] = step.step;
    json["epoch"] = step.epoch;
    json["loss"] = number(step.loss);
    json["learning_rate"] = number(step.learning_rate);
    if (!(step.gradient_norm < 0)) json["gradient_norm"] = number(step.gradient_norm);
    json["samples"] = step.samples;
    json["seconds"] = number(step.seconds);
    add_exchange(json, step.operations, step.bytes_sent);
    if (step.updated_elements > 0) json["updated_elements"] = step.updated_elements;
    if (step.steps > 1) json["steps"] = step.steps;
    if (step.waited > 0) json["waited"] = number(step.waited);
    return json;
  }
  Json operator()(const SkipRecord& skip) const {
    Json json = head("skip", time);
    json["step"] = skip.step;
    json["samples"] = skip.samples;
    json["seconds"] = number(skip.seconds);
    add_exchange(json, skip.operations, skip.bytes_sent);
    return json;
  }
  Json operator()(const EvalRecord& eval) const {
    Json json = head("eval", time);
    json["step"] = eval.step;
    json["epoch"] = eval.epoch;
    json["loss"] = number(eval.loss);
    json["accuracy"] = number(eval.accuracy);
    if (eval.samples > 0) json["samples"] = eval.samples;
    if (!eval.metrics.empty()) json["metrics"] = numbers(eval.metrics);
    return json;
  }
  Json operator()(const ScalarRecord& scalars) const {
    Json json = head("scalars", time);
    json["step"] = scalars.step;
    json["values"] = numbers(scalars.values);
    return json;
  }
  Json operator()(const Message& message) const {
    Json json = head("message", time);
    json["text"] = message.text;
    return json;
  }
  Json operator()(const SaveRecord& save) const {
    Json json = message_of_kind("save", save);
    json["path"] = save.path;
    return json;
  }
  Json operator()(const GuardRecord& guard) const {
    Json json = message_of_kind("guard", guard);
    json["step"] = guard.step;
    json["action"] = guard.action;
    json["reason"] = guard.reason;
    return json;
  }
  Json operator()(const FaultRecord& fault) const {
    Json json = head("fault", time);
    json["step"] = fault.step;
    json["fault"] = fault.fault;
    return json;
  }
  Json operator()(const NoticeRecord& notice) const {
    Json json = head("verdict", time);
    json.update(notice.record);
    return json;
  }
  Json operator()(const ContinueRecord& from) const {
    Json json = head("continue", time);
    json["generation"] = from.generation;
    json["step"] = from.step;
    json["epoch"] = from.position.epoch;
    json["first"] = from.position.consumed;
    json["data"] = {{"samples", from.data.samples},
                    {"batch", from.data.batch},
                    {"seed", from.data.seed},
                    {"shuffle", from.data.shuffle.to_json()},
                    {"drop_last", from.data.drop_last}};
    if (!from.ledger.is_null()) json["ledger"] = from.ledger;
    if (!from.cause.empty()) json["cause"] = from.cause;
    if (!from.checkpoint.empty()) json["checkpoint"] = from.checkpoint;
    return json;
  }
  Json operator()(const CommitRecord& commit) const {
    Json json = head("commit", time);
    json["generation"] = commit.generation;
    json["step"] = commit.step;
    json["epoch"] = commit.position.epoch;
    json["first"] = commit.position.consumed;
    json["samples"] = commit.samples;
    json["shares"] = commit.shares;
    if (!commit.updated) json["skipped"] = true;
    if (commit.left_out > 0) json["left_out"] = commit.left_out;
    return json;
  }
  Json operator()(const RunEnd& end) const {
    Json json = head("end", time);
    json["stopped"] = end.stopped;
    json["report"] = end.report;
    if (end.report.is_object()) json["report"].erase("loss_history");
    name_nonfinite(json["report"]);
    return json;
  }
  Json message_of_kind(const char* kind, const Event& event) const {
    Json json = head("message", time);
    json["kind"] = kind;
    json["text"] = sentence_of(event);
    return json;
  }
};

}  // namespace

Json to_json(const Event& event, std::optional<double> unix_seconds) {
  return std::visit(Writer{unix_seconds}, event);
}

Json to_json(const Told& told) {
  Json json = to_json(told.event, told.time);
  if (told.rank >= 0) json["rank"] = told.rank;
  return json;
}

std::string to_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace trireme::monitor
