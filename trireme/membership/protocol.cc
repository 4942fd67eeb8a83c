#include <fmt/format.h>
#include <trireme/membership/protocol.h>

namespace trireme::membership {
namespace {

ErrorCode error_code_from(const std::string& name) {
  for (const ErrorCode code : {ErrorCode::invalid_argument, ErrorCode::not_found,
                               ErrorCode::unsupported, ErrorCode::timeout, ErrorCode::peer_lost,
                               ErrorCode::aborted, ErrorCode::corrupt, ErrorCode::io}) {
    if (to_string(code) == name) return code;
  }
  return ErrorCode::internal;
}

Json with_failure(Json message, const Failure& failure) {
  message["error"] = std::string(to_string(failure.code));
  message["what"] = failure.what;
  message["remedy"] = failure.remedy;
  return message;
}

std::string shown(const Facts& facts, const std::string& key) {
  const auto found = facts.find(key);
  return found == facts.end() ? "not set" : "'" + found->second + "'";
}

void add_place(Json& message, const PhaseAt& at) {
  message["phase"] = std::string(to_string(at.phase));
  message["step"] = at.step;
  const CollectiveAt& it = at.collective;
  message["collective"] = {it.number, it.inside, it.waits, it.operation, it.bytes};
}

PhaseAt place_from(const Json& message) {
  const Json& it = message.at("collective");
  return {phase_from_string(message.at("phase").get<std::string>()),
          message.at("step").get<int64_t>(),
          CollectiveAt{it.at(0).get<int64_t>(), it.at(1).get<bool>(), it.at(2).get<bool>(),
                       it.at(3).get<std::string>(), it.at(4).get<int64_t>()}};
}

}  // namespace

Error Failure::error() const { return Error(code, "membership", what, remedy); }

Json reply_to(int64_t request) { return {{"op", "reply"}, {"id", request}}; }
Json reply_to(int64_t request, const Failure& failure) {
  return with_failure(reply_to(request), failure);
}
Json failed(const Failure& failure) { return with_failure({{"op", "failed"}}, failure); }
Json deadlock_message(const Failure& failure) {
  return with_failure({{"op", "deadlock"}}, failure);
}
Json refusal(const Failure& failure) { return with_failure({{"op", "refused"}}, failure); }

std::optional<Failure> failure_in(const Json& message) {
  if (!message.contains("error")) return std::nullopt;
  return Failure{error_code_from(message.at("error").get<std::string>()),
                 message.at("what").get<std::string>(), message.at("remedy").get<std::string>()};
}

Json lost_message(const LostWorker& lost) {
  Json message = {{"op", "lost"}, {"worker", lost.worker}, {"host", lost.host}, {"pid", lost.pid}};
  add_place(message, lost.last);
  message["reason"] = lost.reason;
  message["circumstances"] = lost.circumstances;
  if (lost.task) {
    message["role"] = lost.task->role;
    message["index"] = lost.task->index;
  }
  return message;
}

LostWorker lost_from(const Json& message) {
  std::optional<Task> task;
  if (message.contains("role"))
    task = {message["role"].get<std::string>(), message.at("index").get<int>()};
  return {message.at("worker").get<int>(),
          message.at("host").get<std::string>(),
          message.at("pid").get<int>(),
          place_from(message),
          message.at("reason").get<std::string>(),
          message.at("circumstances").get<std::string>(),
          task};
}

Json beat_message(const PhaseNow& phase, std::chrono::steady_clock::time_point now) {
  Json message = {{"op", "beat"}};
  add_place(message, phase.at);
  message["for"] = std::chrono::nanoseconds(now - phase.since).count();
  message["times"] = {phase.times.steps, phase.times.waiting, phase.times.seconds,
                      phase.times.squares};
  return message;
}

PhaseNow beat_from(const Json& message, std::chrono::steady_clock::time_point now) {
  const Json& times = message.at("times");
  return {place_from(message), now - std::chrono::nanoseconds(message.at("for").get<int64_t>()),
          PhaseTimes{times.at(0).get<int64_t>(), times.at(2).get<std::array<double, kPhases>>(),
                     times.at(1).get<double>(), times.at(3).get<double>()}};
}

Json bytes(const std::string& value) { return Json::binary({value.begin(), value.end()}); }

std::string bytes_from(const Json& value) {
  const auto& binary = value.get_binary();
  return {binary.begin(), binary.end()};
}

std::string worker_name(int worker, const std::string& host) {
  return host.empty() ? fmt::format("worker {}", worker)
                      : fmt::format("worker {} (host {})", worker, host);
}

std::string enumerate(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

std::optional<std::string> first_difference(const std::string& one, const Facts& a,
                                            const std::string& other, const Facts& b) {
  std::optional<std::string> first;
  for (const Facts* facts : {&a, &b}) {
    for (const auto& [key, value] : *facts) {
      if (shown(a, key) != shown(b, key) && (!first || key < *first)) first = key;
    }
  }
  if (!first) return std::nullopt;
  return fmt::format("{} is {} on {} and {} on {}", *first, shown(a, *first), one,
                     shown(b, *first), other);
}

}  // namespace trireme::membership
