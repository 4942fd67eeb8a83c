#include <trireme/base/error.h>
#include <trireme/monitor/event_json.h>
#include <algorithm>
#include <limits>

namespace trireme::monitor {
namespace {

// Takes fields out of an object and remembers whether each was there with the right type.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}
  bool complete() const { return complete_; }

  void operator()(const char* key, int64_t& value) {
    const Json* field = find(key);
    if (!field) return;
    if (field->is_number_unsigned() &&
        field->get<uint64_t>() > std::numeric_limits<int64_t>::max())
      complete_ = false;
    else if (field->is_number_integer())
      value = field->get<int64_t>();
    else
      complete_ = false;
  }
  void operator()(const char* key, int& value) {
    int64_t wide = 0;
    (*this)(key, wide);
    if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max())
      complete_ = false;
    else
      value = static_cast<int>(wide);
  }
  void operator()(const char* key, double& value) {
    const Json* field = find(key);
    if (!field) return;
    const auto read = read_number(*field);
    if (read)
      value = *read;
    else
      complete_ = false;
  }
  void operator()(const char* key, bool& value) {
    const Json* field = find(key);
    if (field && field->is_boolean())
      value = field->get<bool>();
    else
      complete_ = false;
  }
  void operator()(const char* key, std::string& value) {
    const Json* field = find(key);
    if (field && field->is_string())
      value = field->get<std::string>();
    else
      complete_ = false;
  }
  void operator()(const char* key, Json& value) {
    if (const Json* field = find(key)) value = *field;
  }
  void operator()(const char* key, uint64_t& value) {
    const Json* field = find(key);
    if (field && field->is_number_unsigned())
      value = field->get<uint64_t>();
    else
      complete_ = false;
  }
  void operator()(const char* key, std::map<std::string, double>& values) {
    const Json* field = find(key);
    if (!field || !field->is_object()) return refuse();
    for (const auto& [name, json] : field->items()) {
      const auto read = read_number(json);
      if (!read) return refuse();
      values[name] = *read;
    }
  }
  void operator()(const char* key, std::vector<int64_t>& values) {
    const Json* field = find(key);
    const bool whole = field && field->is_array() &&
                       std::all_of(field->begin(), field->end(),
                                   [](const Json& value) { return value.is_number_integer(); });
    if (whole)
      values = field->get<std::vector<int64_t>>();
    else
      complete_ = false;
  }
  void refuse() { complete_ = false; }
  bool has(const char* key) const { return json_.contains(key); }

 private:
  const Json* find(const char* key) {
    const auto found = json_.find(key);
    if (found != json_.end()) return &*found;
    complete_ = false;
    return nullptr;
  }
  const Json& json_;
  bool complete_ = true;
};

RunStart read_start(Reader& read) {
  RunStart start;
  read("name", start.name);
  read("strategy", start.strategy);
  read("workers", start.workers);
  read("world_size", start.world_size);
  read("total_steps", start.total_steps);
  read("first_step", start.first_step);
  read("steps_per_epoch", start.steps_per_epoch);
  read("parameters", start.parameters);
  return start;
}

void read_exchange(Reader& read, int64_t& operations, int64_t& bytes_sent) {
  if (!read.has("operations")) return;
  read("operations", operations);
  read("bytes_sent", bytes_sent);
}

StepRecord read_step(Reader& read) {
  StepRecord step;
  read("step", step.step);
  read("epoch", step.epoch);
  read("loss", step.loss);
  read("learning_rate", step.learning_rate);
  if (read.has("gradient_norm")) read("gradient_norm", step.gradient_norm);
  read("samples", step.samples);
  read("seconds", step.seconds);
  read_exchange(read, step.operations, step.bytes_sent);
  if (read.has("updated_elements")) read("updated_elements", step.updated_elements);
  if (read.has("steps")) read("steps", step.steps);
  if (read.has("waited")) read("waited", step.waited);
  return step;
}

SkipRecord read_skip(Reader& read) {
  SkipRecord skip;
  read("step", skip.step);
  read("samples", skip.samples);
  read("seconds", skip.seconds);
  read_exchange(read, skip.operations, skip.bytes_sent);
  return skip;
}

EvalRecord read_eval(Reader& read) {
  EvalRecord eval;
  read("step", eval.step);
  read("epoch", eval.epoch);
  read("loss", eval.loss);
  read("accuracy", eval.accuracy);
  if (read.has("samples")) read("samples", eval.samples);
  if (read.has("metrics")) read("metrics", eval.metrics);
  return eval;
}

ScalarRecord read_scalars(Reader& read) {
  ScalarRecord scalars;
  read("step", scalars.step);
  read("values", scalars.values);
  return scalars;
}

Event read_message(Reader& read) {
  Message message;
  read("text", message.text);
  std::string kind;
  if (read.has("kind")) read("kind", kind);
  if (kind == "save") {
    SaveRecord save;
    read("path", save.path);
    return save;
  }
  if (kind == "guard") {
    GuardRecord guard;
    read("step", guard.step);
    read("action", guard.action);
    read("reason", guard.reason);
    return guard;
  }
  return message;
}

FaultRecord read_fault(Reader& read) {
  FaultRecord fault;
  read("step", fault.step);
  read("fault", fault.fault);
  return fault;
}

NoticeRecord read_notice(const Json& json) {
  NoticeRecord notice{json};
  notice.record.erase("event");
  notice.record.erase("time");
  return notice;
}

void read_position(Reader& read, plan::DataPosition& position) {
  read("epoch", position.epoch);
  read("first", position.consumed);
}

ContinueRecord read_continue(Reader& read) {
  ContinueRecord from;
  read("generation", from.generation);
  read("step", from.step);
  read_position(read, from.position);
  Json data;
  read("data", data);
  if (read.has("ledger")) read("ledger", from.ledger);
  if (read.has("cause")) read("cause", from.cause);
  if (read.has("checkpoint")) read("checkpoint", from.checkpoint);
  Reader of_data(data);
  of_data("samples", from.data.samples);
  of_data("batch", from.data.batch);
  of_data("seed", from.data.seed);
  Json order;
  of_data("shuffle", order);
  of_data("drop_last", from.data.drop_last);
  if (!of_data.complete()) {
    read.refuse();
    return from;
  }
  try {
    from.data.shuffle = plan::OrderOptions::from_json(order);
  } catch (const Error&) {
    read.refuse();
  }
  return from;
}

CommitRecord read_commit(Reader& read) {
  CommitRecord commit;
  read("generation", commit.generation);
  read("step", commit.step);
  read_position(read, commit.position);
  read("samples", commit.samples);
  read("shares", commit.shares);
  commit.updated = !read.has("skipped");
  if (read.has("left_out")) read("left_out", commit.left_out);
  return commit;
}

RunEnd read_end(Reader& read) {
  RunEnd end;
  read("stopped", end.stopped);
  read("report", end.report);
  return end;
}

}  // namespace

std::optional<Event> event_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  Reader read(json);
  std::string kind;
  read("event", kind);
  Event event;
  if (kind == "start")
    event = read_start(read);
  else if (kind == "step")
    event = read_step(read);
  else if (kind == "skip")
    event = read_skip(read);
  else if (kind == "eval")
    event = read_eval(read);
  else if (kind == "scalars")
    event = read_scalars(read);
  else if (kind == "message")
    event = read_message(read);
  else if (kind == "continue")
    event = read_continue(read);
  else if (kind == "commit")
    event = read_commit(read);
  else if (kind == "end")
    event = read_end(read);
  else if (kind == "fault")
    event = read_fault(read);
  else if (kind == "verdict")
    event = read_notice(json);
  else
    return std::nullopt;
  if (!read.complete()) return std::nullopt;
  return event;
}

std::optional<Told> told_of(const Json& json) {
  const auto event = event_of(json);
  if (!event) return std::nullopt;
  Told told{.event = *event};
  Reader read(json);
  read("time", told.time);
  if (json.contains("rank") && !std::holds_alternative<NoticeRecord>(*event))
    read("rank", told.rank);
  if (!read.complete()) return std::nullopt;
  return told;
}

std::optional<double> read_number(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (!json.is_string()) return std::nullopt;
  const auto& text = json.get_ref<const std::string&>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

}  // namespace trireme::monitor
